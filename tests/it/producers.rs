//! The functions for producers that choose a partition, from docs/sending.md: each is run if its interpreter exists.

use std::fs;
use std::path::Path;
use std::process::Command;

use quotabell::types::{PartitionNumber, Separator};

/// A subject of the documented table, with its checksum and its partitions.
struct Row {
    subject: String,
    separator: Separator,
    checksum: u32,
    of_4: u32,
    of_8: u32,
}

/// A language of the documents, and how to run its functions.
struct Language {
    fence: &'static str,
    interpreter: &'static str,
    file: &'static str,
    /// The text before and after the function: it prints the stream of each pair of arguments, a subject
    /// and a separator.
    around: [&'static str; 2],
}

const LANGUAGES: [Language; 7] = [
    Language {
        fence: "sh",
        interpreter: "sh",
        file: "f.sh",
        around: ["", "\nwhile [ $# -gt 0 ]; do stream \"$1\" \"$2\"; shift 2; done\n"],
    },
    Language {
        fence: "python",
        interpreter: "python3",
        file: "f.py",
        around: ["", "\nimport sys\nfor pair in zip(sys.argv[1::2], sys.argv[2::2]): print(stream(*pair))\n"],
    },
    Language {
        fence: "js",
        interpreter: "node",
        file: "f.mjs",
        around: [
            "",
            "\nfor (let a = process.argv.slice(2); a.length; a = a.slice(2)) console.log(stream(a[0], a[1]));\n",
        ],
    },
    Language {
        fence: "java",
        interpreter: "java",
        file: "F.java",
        around: [
            "class F {\n",
            "\npublic static void main(String[] a) { for (int i = 0; i < a.length; i += 2) System.out.println(stream(a[i], a[i + 1])); }\n}\n",
        ],
    },
    Language {
        fence: "php",
        interpreter: "php",
        file: "f.php",
        around: [
            "<?php\n",
            "\nforeach (array_chunk(array_slice($argv, 1), 2) as $pair) { echo stream(...$pair), \"\\n\"; }\n",
        ],
    },
    Language {
        fence: "ruby",
        interpreter: "ruby",
        file: "f.rb",
        around: ["", "\nARGV.each_slice(2) { |pair| puts stream(*pair) }\n"],
    },
    Language {
        fence: "go",
        interpreter: "go",
        file: "f.go",
        around: [
            "package main\nimport (\"fmt\"; \"hash/crc32\"; \"os\"; \"strings\")\n",
            "\nfunc main() { for a := os.Args[1:]; len(a) > 0; a = a[2:] { fmt.Println(stream(a[0], a[1])) } }\n",
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

/// The row of `subject`, or of "`subject` with the separator `/`".
fn row(line: &str) -> Option<Row> {
    let cells: Vec<&str> = line.split('|').map(str::trim).collect();
    let [_, subject, checksum, of_4, of_8, _] = cells[..] else { return None };
    let number = |text: &str| text.parse::<u32>().ok();
    let code: Vec<&str> = subject.split('`').collect();
    let (subject, separator) = match code[..] {
        ["", subject, ""] => (subject, ""),
        ["", subject, " with the separator ", separator, ""] => (subject, separator),
        _ => return None,
    };
    let (subject, separator) = (subject.to_owned(), separator.parse().ok()?);
    Some(Row { subject, separator, checksum: number(checksum)?, of_4: number(of_4)?, of_8: number(of_8)? })
}

/// Authors of producers compare their code with this table.
#[test]
fn the_documented_partitions_are_those_of_the_daemon() {
    let rows = table(&section());
    assert!(rows.len() >= 5, "the table is found");
    assert!(rows.iter().any(|row| row.separator != Separator::NONE), "the table has a path");
    for Row { subject, separator, checksum, of_4, of_8 } in rows {
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
        command
            .env("LC_ALL", "C.UTF-8")
            .args(rows.iter().flat_map(|row| [row.subject.clone(), row.separator.to_string()]));
        let Ok(output) = command.output() else { continue };
        let printed = String::from_utf8(output.stdout).expect("text");
        let expected: String = rows.iter().map(|row| format!("usage:{}\n", row.of_8)).collect();
        assert_eq!(printed, expected, "{fence}: {}", String::from_utf8_lossy(&output.stderr));
        tried.push(fence);
    }
    assert!(tried.contains(&"sh") && tried.contains(&"python"), "only {tried:?} could be run");
    println!("run: {tried:?}");
}
