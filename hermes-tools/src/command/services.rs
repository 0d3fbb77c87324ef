//! Services, packages, containers and what else a program changes outside of files.

use super::rules::Judge;

impl Judge<'_> {
    pub(super) fn services_and_packages(&mut self) {
        let name = self.name().to_owned();
        let words: Vec<String> = self.call.plain().map(|arg| arg.text.clone()).collect();
        let word = |at: usize| words.get(at).map_or("", String::as_str);
        let any = |list: &[&str]| words.iter().any(|word| list.contains(&word.as_str()));
        let found: Option<(&str, &str)> = match name.as_str() {
            "systemctl" => (!matches!(
                word(0),
                "status" | "show" | "list-units" | "list-unit-files" | "is-active" | "is-enabled" | "cat" | ""
            ))
            .then_some(("changes services", "services")),
            "service" => (!matches!(word(1), "status" | "")).then_some(("changes services", "services")),
            "crontab" => {
                (!self.call.args.iter().any(|arg| arg.text == "-l")).then_some(("changes what runs later", "crontab"))
            }
            "apt" | "apt-get" | "aptitude" | "dnf" | "yum" | "zypper" | "apk" | "snap" | "flatpak" | "brew"
            | "port" | "dpkg" | "rpm" => {
                let removes = any(&["remove", "purge", "autoremove", "erase", "uninstall", "del", "rm"])
                    || (matches!(name.as_str(), "dpkg" | "rpm") && self.call.has("rPe", &["remove", "purge", "erase"]));
                removes.then_some(("removes packages", "package removal"))
            }
            "pacman" => self.call.has("R", &["remove"]).then_some(("removes packages", "package removal")),
            "pip" | "pip3" | "pipx" | "uv" | "gem" | "conda" => {
                any(&["uninstall", "remove"]).then_some(("removes packages", "package removal"))
            }
            "npm" | "pnpm" | "yarn" | "cargo" => match word(0) {
                "publish" | "unpublish" | "yank" => Some(("publishes or withdraws a package", "package publishing")),
                "uninstall" | "rm" if self.call.has("g", &["global"]) || name == "cargo" => {
                    Some(("removes packages", "package removal"))
                }
                _ => None,
            },
            "docker" | "podman" | "nerdctl" => {
                let remote = self.call.has("H", &["host", "context"]);
                let opens = self.call.args.iter().any(|arg| {
                    matches!(arg.text.as_str(), "--privileged" | "--pid=host" | "/:/host" | "/:/mnt")
                        || arg.text.starts_with("/:")
                        || arg.text.contains("docker.sock")
                        || arg.text.contains("=/:")
                });
                let ends = any(&["rm", "rmi", "kill", "stop", "prune", "down", "restart", "pause", "swarm"]);
                (remote || opens || ends).then_some(("changes containers", "containers"))
            }
            "kubectl" => {
                any(&["delete", "drain", "scale", "replace"]).then_some(("changes a cluster", "kubectl: change"))
            }
            "terraform" | "tofu" | "pulumi" => {
                any(&["destroy", "apply"]).then_some(("changes infrastructure", "infrastructure"))
            }
            "hermes" => {
                let yes = self.call.has("", &["yolo"]);
                let harmless = match word(0) {
                    "config" => matches!(word(1), "show" | "path" | "get" | "check" | ""),
                    "sessions" => matches!(word(1), "list" | "show" | "search" | "export" | ""),
                    "tools" | "model" => matches!(word(1), "list" | ""),
                    "gateway" => matches!(word(1), "status" | ""),
                    "version" | "doctor" | "completion" | "help" => true,
                    "" => self
                        .call
                        .args
                        .iter()
                        .any(|arg| matches!(arg.text.as_str(), "--version" | "--help" | "-h" | "-V")),
                    _ => false,
                };
                (yes || !harmless).then_some(("runs or changes hermes itself", "hermes"))
            }
            "reg" => any(&["delete"]).then_some(("changes the registry", "reg: delete")),
            "nc" | "ncat" | "netcat" | "socat" => (self.call.has("ec", &["exec", "sh-exec"])
                || words.iter().any(|word| word.starts_with("EXEC:") || word.starts_with("SYSTEM:")))
            .then_some(("gives a shell to a connection", "shell connection")),
            "chsh" | "update-alternatives" => Some(("changes the system", "system settings")),
            _ => None,
        };
        if let Some((reason, pattern)) = found {
            self.ask(format!("{name} {reason}"), pattern);
        }
    }
}
