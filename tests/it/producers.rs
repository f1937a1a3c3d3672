//! The functions for producers that choose a partition, from docs/sending.md: each is run if its interpreter exists.

use std::fs;
use std::path::Path;
use std::process::Command;

use quotabell::types::{PartitionNumber, Separator};

/// A subject of the documented table, with its checksum and its partitions.
struct Row {
    subject: String,
    separator: Separator,
    /// What a producer passes to the function: the subject, or its first part if there is a separator.
    passed: String,
    checksum: u32,
    of_4: u32,
    of_8: u32,
}

/// A language of the documents, and how to run its functions.
struct Language {
    fence: &'static str,
    interpreter: &'static str,
    file: &'static str,
    /// The text before and after the function: it prints the stream of each argument.
    around: [&'static str; 2],
}

const LANGUAGES: [Language; 7] = [
    Language { fence: "sh", interpreter: "sh", file: "f.sh", around: ["", "\nfor s; do stream \"$s\"; done\n"] },
    Language {
        fence: "python",
        interpreter: "python3",
        file: "f.py",
        around: ["", "\nimport sys\nfor s in sys.argv[1:]: print(stream(s))\n"],
    },
    Language {
        fence: "js",
        interpreter: "node",
        file: "f.mjs",
        around: ["", "\nfor (const s of process.argv.slice(2)) console.log(stream(s));\n"],
    },
    Language {
        fence: "java",
        interpreter: "java",
        file: "F.java",
        around: [
            "class F {\n",
            "\npublic static void main(String[] a) { for (var s : a) System.out.println(stream(s)); }\n}\n",
        ],
    },
    Language {
        fence: "php",
        interpreter: "php",
        file: "f.php",
        around: ["<?php\n", "\nforeach (array_slice($argv, 1) as $s) { echo stream($s), \"\\n\"; }\n"],
    },
    Language { fence: "ruby", interpreter: "ruby", file: "f.rb", around: ["", "\nARGV.each { |s| puts stream(s) }\n"] },
    Language {
        fence: "go",
        interpreter: "go",
        file: "f.go",
        around: [
            "package main\nimport (\"fmt\"; \"hash/crc32\"; \"os\")\n",
            "\nfunc main() { for _, s := range os.Args[1:] { fmt.Println(stream(s)) } }\n",
        ],
    },
];

fn section() -> String {
    let document =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/sending.md")).expect("it is there");
    let section = document.split("## Several partitions").nth(1).expect("the section is there");
    section.split("\n## ").next().unwrap_or_default().to_owned()
}

fn table(section: &str) -> Vec<Row> {
    let rows = section.lines().filter(|line| line.starts_with('|')).skip(2);
    rows.map(|line| row(line).unwrap_or_else(|| panic!("no row of the table: {line}"))).collect()
}

/// The row of `subject`, or of "`subject` with the separator `/`: that of `part`".
fn row(line: &str) -> Option<Row> {
    let cells: Vec<&str> = line.split('|').map(str::trim).collect();
    let [_, subject, checksum, of_4, of_8, _] = cells[..] else { return None };
    let number = |text: &str| text.parse::<u32>().ok();
    let code: Vec<&str> = subject.split('`').collect();
    let (subject, separator, passed) = match code[..] {
        ["", subject, ""] => (subject, "", subject),
        ["", subject, " with the separator ", separator, ": that of ", passed, ""] => (subject, separator, passed),
        _ => return None,
    };
    let (subject, separator, passed) = (subject.to_owned(), separator.parse().ok()?, passed.to_owned());
    Some(Row { subject, separator, passed, checksum: number(checksum)?, of_4: number(of_4)?, of_8: number(of_8)? })
}

/// Authors of producers compare their code with this table.
#[test]
fn the_documented_partitions_are_those_of_the_daemon() {
    let rows = table(&section());
    assert!(rows.len() >= 5, "the table is found");
    assert!(rows.iter().any(|row| row.subject != row.passed), "the table has a path");
    for Row { subject, separator, passed, checksum, of_4, of_8 } in rows {
        assert_eq!(separator.root(subject.as_bytes()), passed.as_bytes());
        for (count, of) in [(4, of_4), (8, of_8), (256, checksum % 256), (251, checksum % 251)] {
            let partition = PartitionNumber::of_subject(subject.as_bytes(), separator, count);
            assert_eq!(partition.get(), of, "{subject} of {count}");
        }
    }
}

/// A wrong snippet would be copied into every producer.
#[test]
fn the_documented_functions_choose_the_partition() {
    let section = section();
    let rows = table(&section);
    let folder = tempfile::tempdir().expect("a folder");
    let mut tried = Vec::new();
    for Language { fence, interpreter, file, around: [before, after] } in LANGUAGES {
        let code = section.split(&format!("```{fence}\n")).nth(1).and_then(|rest| rest.split("```").next());
        let code = code.unwrap_or_else(|| panic!("there is no function in {fence}"));
        // The example after the function would need a server.
        let code: Vec<&str> = code.lines().filter(|line| !line.starts_with("redis-cli")).collect();
        let path = folder.path().join(file);
        fs::write(&path, [before, &code.join("\n"), after].concat()).expect("it can be written");
        let mut command = Command::new(interpreter);
        command.args((interpreter == "go").then_some("run")).arg(&path);
        // Java decodes its arguments by the locale.
        command.env("LC_ALL", "C.UTF-8").args(rows.iter().map(|row| &row.passed));
        let Ok(output) = command.output() else { continue };
        let printed = String::from_utf8(output.stdout).expect("text");
        let expected: String = rows.iter().map(|row| format!("usage:{}\n", row.of_8)).collect();
        assert_eq!(printed, expected, "{fence}: {}", String::from_utf8_lossy(&output.stderr));
        tried.push(fence);
    }
    assert!(tried.contains(&"sh") && tried.contains(&"python"), "only {tried:?} could be run");
    println!("run: {tried:?}");
}
