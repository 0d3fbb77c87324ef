//! `crash [KILLS] [SPAN_MS] [SEED]`: kill -9 at random points of a turn, then go on, and check everything.

use std::time::Duration;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut args = std::env::args().skip(1).map(|arg| arg.parse::<u64>());
    let kills = args.next().transpose()?.unwrap_or(200);
    let span = Duration::from_millis(args.next().transpose()?.unwrap_or(400));
    let seed = args.next().transpose()?.unwrap_or(1);
    let report = hermes_tests::crash::series(usize::try_from(kills)?, span, seed).await?;
    println!("{report:#?}");
    Ok(())
}
