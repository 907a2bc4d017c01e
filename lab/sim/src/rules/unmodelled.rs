/// Why a match is unknown, as a predicate for reports.
pub(crate) fn match_reason(name: &str) -> &'static str {
    match name {
        "bpf" => "runs a program over the packet",
        "u32" => "looks at bytes of the packet that are not modelled",
        "string" => "looks at what the packet carries",
        "time" => "asks for the time of day",
        "helper" => "asks for a connection tracking helper",
        "cgroup" => "asks for the cgroup of the program that sends the packet",
        "dscp" | "tos" => "asks for the type of service, which is not known",
        "ttl" | "hl" => "asks for the hop limit, which is not known",
        "connbytes" | "quota" | "connlabel" | "rateest" => "asks for what passed before",
        "cpu" => "asks for the processor that handles the packet",
        "devgroup" => "asks for the group of an interface",
        "realm" => "asks for the realm of a route",
        _ => "is not modelled, or not with these options",
    }
}
