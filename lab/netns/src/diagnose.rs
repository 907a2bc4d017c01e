use std::fs;
use std::io;

use super::sandbox::SandboxError;

fn sysctl_is(key: &str, value: &str) -> bool {
    fs::read_to_string(format!("/proc/sys/{key}")).is_ok_and(|v| v.trim() == value)
}

pub(super) fn no_user_namespace(error: &io::Error) -> SandboxError {
    let why = if sysctl_is("user/max_user_namespaces", "0") {
        "user namespaces are switched off here; switch them on with `sysctl user.max_user_namespaces=15000`, or run as root"
            .to_owned()
    } else if sysctl_is("kernel/unprivileged_userns_clone", "0") {
        "user namespaces are for root only here; allow them with `sysctl kernel.unprivileged_userns_clone=1`, or run as root"
            .to_owned()
    } else if error.raw_os_error() == Some(nix::errno::Errno::ENOSPC as i32) {
        format!(
            "a limit on namespaces is reached ({error}); raise user.max_net_namespaces and its like with sysctl, \
             or end other users of namespaces"
        )
    } else if error.raw_os_error() == Some(nix::errno::Errno::EINVAL as i32) {
        "this kernel has no user, network or PID namespaces (CONFIG_USER_NS, CONFIG_NET_NS, CONFIG_PID_NS); \
         boot a distribution kernel"
            .to_owned()
    } else {
        format!(
            "creating namespaces was refused ({error}); in a container, run it with `--privileged`, elsewhere as root"
        )
    };
    SandboxError(why)
}

pub(super) fn no_capabilities(attempted: &str, error: &io::Error) -> SandboxError {
    if sysctl_is("kernel/apparmor_restrict_unprivileged_userns", "1") {
        return SandboxError(format!(
            "{attempted} was refused ({error}): AppArmor leaves user namespaces without capabilities here; \
             allow them with `sysctl kernel.apparmor_restrict_unprivileged_userns=0`, or run as root"
        ));
    }
    SandboxError(format!(
        "{attempted} was refused ({error}) although a user namespace could be made; \
         a security module or a container's seccomp profile forbids it: run as root, or the container with `--privileged`"
    ))
}

pub(super) fn no_feature(attempted: &str, option: &str, error: &str) -> SandboxError {
    SandboxError(format!(
        "{attempted} failed ({error}); the kernel needs {option}: load the module as root, or boot a distribution kernel"
    ))
}
