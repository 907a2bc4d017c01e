pub(crate) fn value<T: Copy>(names: &[(&str, T)], name: &str) -> Option<T> {
    names.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
}

pub(crate) fn name<'n, T: PartialEq>(names: &[(&'n str, T)], value: &T) -> &'n str {
    names.iter().find(|(_, known)| known == value).map_or("", |(name, _)| name)
}

pub(crate) fn parse_flags(names: &[(&str, u8)], text: &str) -> Option<u8> {
    text.split(',').try_fold(0, |bits, name| value(names, name).map(|bit| bits | bit))
}

pub(crate) fn flags(names: &[(&str, u8)], bits: u8) -> String {
    let set = names.iter().filter(|(_, bit)| bits & bit != 0).map(|(name, _)| *name);
    set.collect::<Vec<_>>().join(",")
}
