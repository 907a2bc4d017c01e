//! ipset's error numbers (`include/uapi/linux/netfilter/ipset/ip_set.h`).

#[derive(Debug, thiserror::Error)]
#[error("{}", words(*.0).unwrap_or("an error of ipset"))]
pub(super) struct IpsetError(pub(super) i32);

impl IpsetError {
    pub(super) fn of(code: i32) -> Option<IpsetError> {
        words(code).map(|_| IpsetError(code))
    }
}

fn words(code: i32) -> Option<&'static str> {
    Some(match code {
        4096 => "ipset: a private error",
        4097 => "ipset: the kernel speaks another version of its protocol",
        4098 => "the kernel has no such set type",
        4099 => "there is no room for another set",
        4100 => "the set is in use",
        4101 => "there is a set of that name already",
        4102 => "the sets are of different types",
        4103 => "the member is there already, or is not",
        4108 => "the set is referred to",
        4352 => "the set is full",
        _ => return None,
    })
}
