//! The programs, directories and devices that the rules speak of.

/// Directories without which a system does not work, or that hold everything of somebody.
pub(super) const PROTECTED: &[&str] = &[
    "/",
    "/bin",
    "/boot",
    "/dev",
    "/etc",
    "/home",
    "/lib",
    "/lib32",
    "/lib64",
    "/media",
    "/mnt",
    "/opt",
    "/proc",
    "/root",
    "/run",
    "/sbin",
    "/srv",
    "/sys",
    "/usr",
    "/usr/bin",
    "/usr/lib",
    "/usr/lib64",
    "/usr/local",
    "/usr/sbin",
    "/usr/share",
    "/var",
    "/var/lib",
    "/var/log",
    "/Applications",
    "/Library",
    "/System",
    "/Users",
];

/// Devices that hold file systems, by the beginning of their names.
pub(super) const BLOCK_DEVICES: &[&str] = &[
    "sd", "hd", "vd", "xvd", "nvme", "mmcblk", "md", "dm-", "loop", "disk", "rdisk", "mapper/", "mem", "kmem", "port",
];

/// Programs that end the system or a file system.
pub(super) const NEVER: &[&str] = &["shutdown", "reboot", "halt", "poweroff", "wipefs", "mkswap", "mke2fs"];

/// Interpreters and the options that give them a program as text.
pub(super) const INTERPRETERS: &[(&str, &str)] = &[
    ("python", "c"),
    ("perl", "eE"),
    ("ruby", "e"),
    ("node", "ep"),
    ("nodejs", "ep"),
    ("deno", ""),
    ("bun", "e"),
    ("php", "rBRE"),
    ("lua", "e"),
    ("tclsh", ""),
    ("osascript", "e"),
    ("pwsh", "c"),
    ("powershell", "c"),
    ("Rscript", "e"),
];

/// Programs that are always asked about, with the reason.
pub(super) const ASK: &[(&str, &str)] = &[
    ("sudo", "runs as another user"),
    ("doas", "runs as another user"),
    ("su", "runs as another user"),
    ("pkexec", "runs as another user"),
    ("runuser", "runs as another user"),
    ("pkill", "ends processes by name"),
    ("killall", "ends processes by name"),
    ("killall5", "ends processes"),
    ("shred", "destroys files"),
    ("truncate", "empties files"),
    ("blkdiscard", "destroys a device"),
    ("fdisk", "changes partitions"),
    ("parted", "changes partitions"),
    ("sfdisk", "changes partitions"),
    ("mount", "changes mounts"),
    ("umount", "changes mounts"),
    ("swapoff", "changes the system"),
    ("iptables", "changes the firewall"),
    ("nft", "changes the firewall"),
    ("ufw", "changes the firewall"),
    ("useradd", "changes users"),
    ("userdel", "changes users"),
    ("usermod", "changes users"),
    ("passwd", "changes users"),
    ("chpasswd", "changes users"),
    ("visudo", "changes users"),
    ("groupdel", "changes users"),
    ("launchctl", "changes services"),
    ("at", "runs something later"),
    ("batch", "runs something later"),
    ("chattr", "changes file attributes"),
    ("setfacl", "changes permissions"),
    ("insmod", "changes the kernel"),
    ("rmmod", "changes the kernel"),
    ("modprobe", "changes the kernel"),
    ("sysctl", "changes the kernel"),
    ("diskpart", "changes disks"),
    ("vssadmin", "removes backups"),
    ("taskkill", "ends processes"),
    ("Remove-Item", "removes files"),
    ("del", "removes files"),
    ("format", "formats a disk"),
    ("hash", "gives a program another name"),
    ("enable", "changes the shell"),
    ("unlink", "removes a file"),
    ("srm", "removes files"),
    ("gdb", "reaches into a process"),
    ("nsenter", "leaves a namespace"),
];

/// Settings of git that name programs.
pub(super) const GIT_PROGRAMS: &[&str] = &[
    "core.hookspath",
    "core.sshcommand",
    "core.pager",
    "core.editor",
    "core.fsmonitor",
    "credential.helper",
    "diff.external",
    "sequence.editor",
    "gpg.program",
    "protocol.ext",
];

/// Directories of system programs.
pub(super) const PROGRAM_DIRS: &[&str] =
    &["/bin", "/sbin", "/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin"];

/// Programs that copy or move, whose last argument is written.
pub(super) const COPIERS: &[&str] = &["cp", "mv", "install", "ln", "rsync", "scp"];
