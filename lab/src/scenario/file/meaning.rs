//! Descriptions of keys in the schema, from the tables in docs/scenarios.md.

/// Returns the rows that name the key, one per line: form and meaning.
pub(super) fn meaning(key: &str, rows: impl Iterator<Item = &'static (&'static str, &'static str)>) -> String {
    let named = [format!("`{key}`"), format!("`{key}:")];
    let own = rows.filter(|(form, _)| named.iter().any(|name| form.contains(name.as_str())));
    let lines: Vec<String> = own.map(|(form, meaning)| format!("{form}: {meaning}").replace("\\|", "|")).collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::file::{EXPECT_KEYS, STEP_KEYS};

    #[test]
    fn a_key_that_shares_a_row_has_its_meaning() {
        let of_step = |key| meaning(key, STEP_KEYS.iter().flat_map(|row| row.docs));
        assert_eq!(of_step("unready"), "`ready: POD`, `unready: POD`: sets the readiness of pods");
        assert!(of_step("apply").starts_with("`apply: |` …: creates"), "{}", of_step("apply"));
        assert_eq!(of_step("killProxy").lines().count(), 2);
        let of_expect = |key| meaning(key, EXPECT_KEYS.iter().flat_map(|row| row.docs));
        assert_eq!(of_expect("lacks"), "`output`, `lacks`: text that the output contains, does not contain");
    }
}
