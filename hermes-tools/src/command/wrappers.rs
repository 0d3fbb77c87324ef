//! Programs that run another program that they are given, and how their options are read.

use super::expand::Arg;
use super::resolve::{base_name, is_shell};

/// Name, letters of options with a value, long options with a value, words before the program.
pub(super) type Wrapper = (&'static str, &'static str, &'static [&'static str], usize);

/// Programs that run another program that they are given.
pub(super) const WRAPPERS: &[Wrapper] = &[
    ("sudo", "ugpCThRrtDU", &["user", "group", "prompt", "chdir", "chroot", "host", "role", "type", "other-user"], 0),
    ("doas", "uC", &[], 0),
    ("run0", "uguD", &["user", "group", "chdir", "unit", "property", "setenv", "nice", "slice"], 0),
    ("env", "uCSa", &["unset", "chdir", "split-string", "argv0"], 0),
    ("nice", "n", &["adjustment"], 0),
    ("ionice", "cnpPu", &["class", "classdata"], 0),
    ("chrt", "TPDp", &["sched-runtime", "sched-period", "sched-deadline", "pid"], 1),
    ("schedtool", "aenpM", &[], 0),
    ("uclampset", "mMp", &["util-min", "util-max", "pid"], 0),
    ("taskset", "", &[], 1),
    ("numactl", "ipmNCPlwo", &["interleave", "preferred", "membind", "cpunodebind", "physcpubind"], 0),
    ("prlimit", "po", &["pid", "output"], 0),
    ("setarch", "", &[], 1),
    ("linux32", "", &[], 0),
    ("linux64", "", &[], 0),
    ("i386", "", &[], 0),
    ("x86_64", "", &[], 0),
    ("uname26", "", &[], 0),
    ("choom", "np", &["adjust", "pid"], 0),
    ("nohup", "", &[], 0),
    ("timeout", "ks", &["kill-after", "signal"], 1),
    ("command", "", &[], 0),
    ("builtin", "", &[], 0),
    ("exec", "a", &[], 0),
    ("coproc", "", &[], 0),
    ("setsid", "", &[], 0),
    ("time", "fo", &["format", "output"], 0),
    ("stdbuf", "ioe", &["input", "output", "error"], 0),
    ("unbuffer", "", &[], 0),
    ("xargs", "adEILnPs", &["arg-file", "delimiter", "max-args", "max-procs", "max-chars", "process-slot-var"], 0),
    ("busybox", "", &[], 0),
    ("toybox", "", &[], 0),
    ("chroot", "", &["userspec", "groups"], 1),
    ("flock", "wE", &["timeout", "wait", "conflict-exit-code"], 1),
    ("lockf", "t", &[], 1),
    ("setlock", "", &[], 1),
    ("sem", "jn", &["jobs", "id", "semaphorename", "st", "semaphoretimeout"], 0),
    (
        "unshare",
        "SGRwl",
        &[
            "root",
            "wd",
            "setuid",
            "setgid",
            "map-user",
            "map-group",
            "map-users",
            "map-groups",
            "propagation",
            "setgroups",
            "monotonic",
            "boottime",
            "load-interp",
        ],
        0,
    ),
    ("nsenter", "tSGW", &["target", "setuid", "setgid", "wdns"], 0),
    ("bwrap", "", &[], 0),
    ("firejail", "", &[], 0),
    ("strace", "aeEIoOpPsSuXbU", &["output", "trace", "attach", "user", "env"], 0),
    ("ltrace", "aeFlnopsuxX", &["output"], 0),
    ("perf", "oepCFcgGmMnrID", &["output", "event", "pid", "cpu", "repeat"], 1),
    ("valgrind", "", &[], 0),
    ("catchsegv", "", &[], 0),
    ("gdb", "xp", &["command", "pid"], 0),
    ("lldb", "osSpfk", &[], 0),
    ("rr", "", &[], 1),
    (
        "setpriv",
        "",
        &[
            "reuid",
            "regid",
            "ruid",
            "rgid",
            "euid",
            "egid",
            "groups",
            "inh-caps",
            "ambient-caps",
            "bounding-set",
            "securebits",
            "pdeathsig",
            "selinux-label",
            "apparmor-profile",
            "landlock-access",
            "landlock-rule",
            "seccomp-filter",
        ],
        0,
    ),
    ("capsh", "", &[], 0),
    ("runcon", "tulr", &["type", "user", "range", "role"], 0),
    ("aa-exec", "pn", &["profile", "namespace"], 0),
    (
        "systemd-run",
        "pEuMHC",
        &[
            "property",
            "setenv",
            "unit",
            "slice",
            "machine",
            "host",
            "description",
            "service-type",
            "uid",
            "gid",
            "nice",
            "working-directory",
            "on-active",
            "on-boot",
            "on-startup",
            "on-unit-active",
            "on-unit-inactive",
            "on-calendar",
            "timer-property",
            "path-property",
            "socket-property",
        ],
        0,
    ),
    ("systemd-inhibit", "", &["what", "who", "why", "mode"], 0),
    ("systemd-cat", "tp", &["identifier", "priority", "stderr-priority"], 0),
    ("systemd-nspawn", "DMuEp", &["directory", "machine", "user", "bind"], 0),
    ("dbus-run-session", "", &["config-file", "dbus-daemon"], 0),
    ("dbus-launch", "", &[], 0),
    ("ssh-agent", "aEtP", &[], 0),
    ("gpg-agent", "", &[], 0),
    ("xvfb-run", "efnpsw", &["error-file", "auth-file", "server-num", "xauth-protocol", "server-args", "wait"], 0),
    ("fakeroot", "lsibf", &["lib", "faked"], 0),
    ("fakechroot", "lsbe", &["lib"], 0),
    ("faketime", "f", &[], 1),
    ("eatmydata", "", &[], 0),
    ("torsocks", "", &[], 0),
    ("torify", "", &[], 0),
    ("proxychains", "f", &[], 0),
    ("proxychains4", "f", &[], 0),
    ("tsocks", "", &[], 0),
    ("rlwrap", "abcCdDefHlmnopPqsStwz", &[], 0),
    ("cpulimit", "lpe", &["limit", "pid", "exe"], 0),
    ("cgexec", "g", &[], 0),
    ("chpst", "uUebmdopfcrt/", &[], 0),
    ("setuidgid", "", &[], 1),
    ("gosu", "", &[], 1),
    ("su-exec", "", &[], 1),
    ("softlimit", "adfmlorpst", &[], 0),
    ("tini", "pe", &[], 0),
    ("dumb-init", "", &[], 0),
    ("pkexec", "", &["user"], 0),
    ("caffeinate", "tw", &[], 0),
    ("proot", "rbwqRSki", &["rootfs", "bind", "pwd", "cwd", "qemu"], 0),
    ("noglob", "", &[], 0),
    ("nocorrect", "", &[], 0),
    ("ld.so", "", &["library-path", "inhibit-rpath", "audit", "preload", "argv0", "glibc-hwcaps-prepend"], 0),
    ("then", "", &[], 0),
    ("do", "", &[], 0),
];

/// The wrapper of a name. The loader of programs has many names.
pub(super) fn wrapper(name: &str) -> Option<&'static Wrapper> {
    let loader = name.starts_with("ld-linux") || name.starts_with("ld-musl") || name.starts_with("ld64.so");
    let name = if loader { "ld.so" } else { name };
    WRAPPERS.iter().find(|wrapper| wrapper.0 == name)
}

/// Programs whose words are words and no commands, or that are judged by their own rules: a word `rm` behind them runs
/// nothing.
const NOT_WRAPPERS: &[&str] = &[
    "echo",
    "printf",
    "grep",
    "egrep",
    "fgrep",
    "rg",
    "ag",
    "ack",
    "git",
    "hg",
    "svn",
    "docker",
    "podman",
    "nerdctl",
    "cargo",
    "npm",
    "pnpm",
    "yarn",
    "man",
    "info",
    "which",
    "type",
    "whereis",
    "whatis",
    "apropos",
    "help",
    "tldr",
    "test",
    "[",
    "[[",
    "((",
    "case",
    "for",
    "select",
    "set",
    "ls",
    "cat",
    "touch",
    "mkdir",
    "rm",
    "rmdir",
    "cp",
    "mv",
    "ln",
    "stat",
    "file",
    "head",
    "tail",
    "wc",
    "sort",
    "diff",
    "cmp",
    "chmod",
    "chown",
    "export",
    "unset",
    "declare",
    "local",
    "read",
    "tee",
    "sed",
    "awk",
    "tr",
    "cut",
    "basename",
    "dirname",
    "realpath",
    "readlink",
    "kill",
    "pkill",
    "pgrep",
    "apt",
    "apt-get",
    "dpkg",
    "brew",
    "pip",
    "pip3",
    "systemctl",
    "alias",
    "trap",
    "eval",
    "source",
    ".",
    "cd",
    "find",
    "fd",
    "return",
    "exit",
    "hash",
    "enable",
    "dnf",
    "yum",
    "apk",
    "pacman",
    "rpm",
    "conda",
    "snap",
    "su",
    "runuser",
    "script",
    "sg",
];

/// The call that an unknown program may be handed: the first of its words that is a destructive program, or a shell
/// with a script.
pub(super) fn handed(name: &str, args: &[Arg]) -> Option<Vec<Arg>> {
    if NOT_WRAPPERS.contains(&name) || is_shell(name) {
        return None;
    }
    for (at, arg) in args.iter().enumerate() {
        let word = base_name(&arg.text);
        let script =
            is_shell(word) && args[at + 1..].iter().any(|arg| arg.text.starts_with('-') && arg.text.contains('c'));
        let removes = matches!(word, "rm" | "rimraf" | "shred" | "dd" | "wipefs" | "chmod" | "chown" | "mv")
            || word.starts_with("mkfs");
        let finds =
            word == "find" && args[at + 1..].iter().any(|arg| arg.text == "-delete" || arg.text.starts_with("-exec"));
        if script || removes || finds {
            return Some(args[at..].to_vec());
        }
        if NOT_WRAPPERS.contains(&word) {
            return None;
        }
    }
    None
}

/// True when `given` is the long option, or a shorter form of it that GNU programs understand.
pub(super) fn is_long(given: &str, option: &str) -> bool {
    !given.is_empty() && option.starts_with(given)
}

/// The arguments behind the options of a wrapper.
pub(super) fn after_options(args: &[Arg], letters: &str, long: &[&str]) -> Vec<Arg> {
    let mut at = 0;
    while let Some(arg) = args.get(at) {
        let text = arg.text.as_str();
        if text == "--" {
            at += 1;
            break;
        }
        if let Some(name) = text.strip_prefix("--") {
            let takes_next = !name.contains('=') && long.iter().any(|long| is_long(name, long));
            at += if takes_next { 2 } else { 1 };
        } else if text.len() > 1 && text.starts_with('-') {
            // A letter with a value takes the rest of the word, or the next word.
            let takes_next = text.chars().last().is_some_and(|last| {
                let first = text.chars().skip(1).find(|c| letters.contains(*c));
                first == Some(last)
            });
            at += if takes_next { 2 } else { 1 };
        } else {
            break;
        }
    }
    args.get(at..).unwrap_or_default().to_vec()
}

/// The values of an option in all its forms.
pub(super) fn option_values(args: &[Arg], letters: &str, long: &[&str]) -> Vec<Arg> {
    let mut values = Vec::new();
    for (at, arg) in args.iter().enumerate() {
        let text = arg.text.as_str();
        if let Some(name) = text.strip_prefix("--") {
            match name.split_once('=') {
                Some((name, value)) if long.iter().any(|long| is_long(name, long)) => {
                    values.push(arg.with(value));
                }
                None if long.iter().any(|long| is_long(name, long)) => values.extend(args.get(at + 1).cloned()),
                _ => {}
            }
        } else if let Some(short) = text.strip_prefix('-')
            && let Some(place) = short.find(|c| letters.contains(c))
        {
            let rest = short[place..].chars().skip(1).collect::<String>();
            if rest.is_empty() {
                values.extend(args.get(at + 1).cloned());
            } else {
                values.push(arg.with(rest));
            }
        }
    }
    values
}
