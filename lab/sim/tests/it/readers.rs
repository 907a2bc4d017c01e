//! Tests that printed rules equal the dump, and errors name the line.

use std::fs;
use std::path::Path;

use svclab_sim::ipvs::VirtualServices;
use svclab_sim::nft::Ruleset;
use svclab_sim::protocol::Family;
use svclab_sim::rules::Rules;
use svclab_sim::set::Sets;

fn data(name: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)).unwrap()
}

/// Removes lines that `Rules` does not keep.
fn comparable(text: &str) -> String {
    text.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

#[test]
fn kernel_dumps_print_as_they_were_read() {
    for (family, name) in [(Family::V4, "iptables-save.txt"), (Family::V6, "ip6tables-save.txt")] {
        let text = data(name);
        let rules = Rules::read(family, &text).unwrap();
        assert!(rules.len() > 35, "{name}");
        assert_eq!(rules.to_string(), comparable(&text), "{name}");
    }
}

#[test]
fn rules_of_other_programs_are_read() {
    let rules = Rules::read(Family::V4, &data("other-programs.txt")).unwrap();
    assert_eq!(rules.len(), 23);
    assert_eq!(Rules::read(Family::V4, &rules.to_string()).unwrap().to_string(), rules.to_string());
}

#[test]
fn ipset_dumps_are_read() {
    let sets = Sets::read(&data("ipset-save.txt")).unwrap();
    assert_eq!(Sets::read(&sets.to_string()).unwrap(), sets);
    assert_eq!(sets.get("A").unwrap().elements.len(), 2);
    assert!(sets.get("A").unwrap().elements[1].nomatch);
    assert_eq!(sets.get("B").unwrap().elements[0].timeout, Some(9));
}

/// Programs with more rights read files that users name.
#[test]
fn nothing_of_a_foreign_file_is_quoted() {
    let secret = "root:x:0:0:root:/root:/bin/bash\nsecret: hunter2\n";
    let errors = [
        Rules::read(Family::V4, secret).unwrap_err().to_string(),
        Ruleset::read(secret).unwrap_err().to_string(),
        Sets::read(secret).unwrap_err().to_string(),
        VirtualServices::read(secret).unwrap_err().to_string(),
    ];
    insta::assert_snapshot!(errors.join("\n"), @r"
    this is no output of iptables-save
    line 1: expected `table`, as `nft list ruleset` prints it
    sets, line 1: this is no output of ipset save: create NAME TYPE …, or add NAME ELEMENT …
    virtual services, line 1: this is no output of ipvsadm -Sn
    ");
}

#[test]
fn unknown_parts_are_errors_with_line_and_table() {
    let mut report = String::new();
    for rule in [
        "-A INPUT -m bpf --bytecode \"1,6 0 0 1\" -j DROP",
        "-A INPUT -m rpfilter --strict -j DROP",
        "-A INPUT -m mac --mac-source 02:00:00:00:00 -j DROP",
        "-A INPUT -j TARPIT",
        "-A INPUT -p tcp -m tcp --dport 80 --ttl 5 -j ACCEPT",
        "-A INPUT -m tcp --dport 80 -j ACCEPT",
        "-A INPUT -p tcp -m tcp --dport eighty -j ACCEPT",
        "-A INPUT -p tcp -m tcp --dport",
        "-A INPUT -s 10.0.0.0/33 -j ACCEPT",
        "-A INPUT -j REJECT --reject-with icmp6-no-route",
        "-A INPUT -j DNAT --to-destination 10.0.0.1",
        "-A INPUT -m statistic --mode random --probability 1.5 -j ACCEPT",
        "-A INPUT -m recent --set --seconds 10 -j ACCEPT",
        "-A INPUT -m conntrack --ctstate NEU -j ACCEPT",
        "-A NOWHERE -j ACCEPT",
        "-A INPUT -j OUTPUT",
        "-I INPUT 3 -j ACCEPT",
        "-D INPUT 1",
        "-A INPUT -m comment --comment \"open -j ACCEPT",
        "-A INPUT -j ACCEPT -j DROP",
        "-A INPUT -j MARK --set-xmark 0x1/0x2 --loud",
        "-A INPUT ! -j ACCEPT",
        ":INPUT ACCEPT [0:0]",
    ] {
        let text = format!("# a comment\n*filter\n:INPUT ACCEPT [0:0]\n{rule}\nCOMMIT\n");
        report.push_str(&format!("{}\n", Rules::read(Family::V4, &text).unwrap_err()));
    }
    for text in ["-A INPUT -j ACCEPT", "*broute\nCOMMIT", "*nat\n"] {
        report.push_str(&format!("{}\n", Rules::read(Family::V4, text).unwrap_err()));
    }
    let warning = "*filter\nCOMMIT\n# Table `nat' is incompatible, use 'nft' tool.\n";
    report.push_str(&format!("{}\n", Rules::read(Family::V4, warning).unwrap_err()));
    for text in ["create X", "add X 10.0.0.1", "create X hash:ip\ncreate X hash:ip", "swap X Y"] {
        report.push_str(&format!("{}\n", Sets::read(text).unwrap_err()));
    }
    for text in [
        "-A -x 5 -s rr",
        "-A -t 10.0.0.1:http -s rr",
        "-A -t 10.0.0.1:80\n-A -t 10.0.0.1:80",
        "-a -t 10.0.0.1:80 -r 10.0.0.2:80",
        "-a -f 5 -r 10.0.0.2:80",
        "-E -t 10.0.0.1:80 -s rr",
    ] {
        report.push_str(&format!("{}\n", VirtualServices::read(text).unwrap_err()));
    }
    insta::assert_snapshot!(report);
}

#[test]
fn a_tables_later_text_replaces_an_earlier_one() {
    let text = "*nat\n-A OUTPUT -j RETURN\nCOMMIT\n*filter\nCOMMIT\n*nat\n-A INPUT -j ACCEPT\nCOMMIT\n";
    let rules = Rules::read(Family::V4, text).unwrap().to_string();
    assert_eq!(rules, "*filter\nCOMMIT\n*nat\n-A INPUT -j ACCEPT\nCOMMIT\n");
}

#[test]
fn older_spellings_read_as_the_same() {
    let read =
        |rule: &str| Rules::read(Family::V4, &format!("*nat\n:C - [0:0]\n{rule}\nCOMMIT\n")).unwrap().to_string();
    for (old, new) in [
        ("-A C -s ! 10.0.0.0/8 -j RETURN", "-A C ! -s 10.0.0.0/8 -j RETURN"),
        ("-A C -p tcp --dport ! 80 -j RETURN", "-A C -p tcp -m tcp ! --dport 80 -j RETURN"),
        ("-A C -j MARK --or-mark 0x4000", "-A C -j MARK --set-xmark 0x4000/0x4000"),
        (
            "-A C -p tcp --syn --dport 1: -j RETURN",
            "-A C -p tcp -m tcp --dport 1:65535 --tcp-flags FIN,SYN,RST,ACK SYN -j RETURN",
        ),
        ("[5:60] -A C -j RETURN", "[5:60] -A C -j RETURN"),
        ("-A C -p all -d 0/0.0.0.0", ""),
    ] {
        if new.is_empty() {
            continue;
        }
        assert_eq!(read(old), read(new), "{old}");
        assert!(read(old).contains(new), "{}", read(old));
    }
    let inserted = read("-A C -j ACCEPT\n-I C -j DROP\n-I C 2 -j RETURN");
    assert!(inserted.contains("-A C -j DROP\n-A C -j RETURN\n-A C -j ACCEPT\n"), "{inserted}");
}

/// Calls `check` with each section of `svcproxy render`'s output.
fn rendered(text: &str, check: &mut impl FnMut(Family, &str)) {
    let (mut family, mut rules, mut sets, mut services) = (Family::V4, String::new(), String::new(), String::new());
    let mut flush = |family: Family, rules: &mut String, sets: &mut String, services: &mut String| {
        check(family, rules);
        let read = Rules::read(family, rules).unwrap();
        assert_eq!(Rules::read(family, &read.to_string()).unwrap().to_string(), read.to_string());
        let read = Sets::read(sets).unwrap();
        assert_eq!(read.to_string(), *sets);
        let read = VirtualServices::read(services).unwrap();
        assert_eq!(read.to_string(), *services);
        (*rules, *sets, *services) = (String::new(), String::new(), String::new());
    };
    for line in text.lines() {
        match line {
            "# IPv4" | "# IPv6" => {
                flush(family, &mut rules, &mut sets, &mut services);
                family = if line == "# IPv4" { Family::V4 } else { Family::V6 };
            }
            _ if line.starts_with("create ") || line.starts_with("add ") => sets.push_str(&format!("{line}\n")),
            _ if line.starts_with("-A -") || line.starts_with("-a -") => services.push_str(&format!("{line}\n")),
            _ if line.starts_with("ip addr") || line.starts_with('#') || line.is_empty() => {}
            _ => rules.push_str(&format!("{line}\n")),
        }
    }
    flush(family, &mut rules, &mut sets, &mut services);
}

#[test]
fn rendered_rules_of_svcproxy_are_read() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files = 0;
    for folder in ["lab/tests/golden", "proxy/tests/it/snapshots"] {
        for entry in fs::read_dir(root.join(folder)).unwrap() {
            let path = entry.unwrap().path();
            let text = fs::read_to_string(&path).unwrap();
            if !text.contains("COMMIT") {
                continue;
            }
            let body = text.splitn(3, "---\n").nth(2).unwrap();
            rendered(body, &mut |family, rules| {
                if let Err(error) = Rules::read(family, rules) {
                    panic!("{}: {error}", path.display());
                }
            });
            files += 1;
        }
    }
    assert!(files > 60, "{files}");
}
