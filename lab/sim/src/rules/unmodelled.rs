/// Returns the reason as a sentence's predicate.
pub(crate) fn match_reason(name: &str) -> &'static str {
    match name {
        "" => "matches a protocol whose number is unknown",
        "bpf" => "runs a program over the packet",
        "u32" => "matches unmodelled bytes of the packet",
        "string" => "matches the payload",
        "time" => "matches the time of day",
        "helper" => "matches the conntrack helper",
        "cgroup" => "matches the cgroup of the sender",
        "dscp" | "tos" => "matches the unknown type of service",
        "connbytes" | "quota" | "connlabel" | "rateest" => "matches earlier traffic",
        "cpu" => "matches the processor",
        "devgroup" => "matches the group of an interface",
        "realm" => "matches the realm of a route",
        _ => "is not modelled, or not with these options",
    }
}
