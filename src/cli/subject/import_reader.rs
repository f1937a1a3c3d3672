//! Lines of an import: CSV or JSON Lines, read one by one, each with its line number. Knows the fields' names, not
//! their rules. Read next: `import_csv` for records, `import_text` for lines.

use std::collections::BTreeMap;
use std::io::Read;

use serde_json::Value;

use crate::actions::contact_spec::ContactColumns;
use crate::actions::grants::NewGrant;
use crate::cli::contact_args::AddressArgs;
use crate::subjects::record::LIMIT_PREFIX;
use crate::types::text::{nearest, suggestion};

use super::import_csv::{self, Cell, Header};
pub use super::import_text::ImportReadError;
use super::import_text::ImportText;

/// The field that every line needs.
pub const SUBJECT: &str = "subject";

/// The fields that a line may hold, beside `limit:<metric>` and the contacts.
const FIELDS: [&str; 8] = [SUBJECT, "plan", "timezone", "billing_day", "billing_month", "thresholds", "locale", "name"];

/// The limits of all metrics in one object, in JSON Lines alone. A cell holds those of one metric.
const LIMITS: &str = "limits";

/// The grants, in JSON Lines alone.
const GRANTS: &str = "grants";

/// The contacts as they are shown, in JSON Lines alone, where there are none: they are shown without their secrets.
const CONTACTS: &str = "contacts";

/// What one line names, as written. Nothing is checked yet.
#[derive(Debug, Clone, Default)]
pub struct ImportRow {
    /// By the name of the field; those of `limit:<metric>` as `600/hour 5000/day`, the thresholds as `80,100`.
    pub settings: BTreeMap<String, String>,
    pub contacts: ContactColumns,
    /// Each has an id, so that a second import gives nothing again.
    pub grants: Vec<NewGrant>,
    /// Whether spaces around the subject were left out.
    pub subject_was_trimmed: bool,
}

/// One line and what was made of it.
#[derive(Debug)]
pub struct ImportLine {
    /// Its number, 1 for the first line of the file.
    pub number: u64,
    /// The row, or what is wrong with the line.
    pub row: Result<ImportRow, String>,
}

/// How a file is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum ImportFormat {
    /// A header line, then a line for each subject
    Csv,
    /// One JSON object a line
    Jsonl,
}

/// The lines of a file.
#[derive(Debug)]
pub struct ImportReader<R: Read> {
    text: ImportText<R>,
    format: ImportFormat,
    /// The CSV header, once read.
    header: Option<Header>,
    /// Whether a line that is not blank was read.
    has_content: bool,
}

impl<R: Read> ImportReader<R> {
    /// Reads `input`; without a format, `{` as the first character means JSON Lines.
    pub fn new(input: R, format: Option<ImportFormat>) -> Result<Self, ImportReadError> {
        let mut text = ImportText::new(input);
        let is_json = text.peek()?.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{');
        let format = format.unwrap_or(if is_json { ImportFormat::Jsonl } else { ImportFormat::Csv });
        Ok(Self { text, format, header: None, has_content: false })
    }

    /// The next line that is not blank; `None` at the end.
    ///
    /// # Errors
    ///
    /// [`ImportReadError`]: what follows can't be read either.
    pub fn next_line(&mut self) -> Result<Option<ImportLine>, ImportReadError> {
        let line = match self.format {
            ImportFormat::Jsonl => self.next_json()?,
            ImportFormat::Csv => self.next_csv()?,
        };
        self.has_content |= line.is_some();
        if self.has_content { Ok(line) } else { Err(ImportReadError::Empty) }
    }

    fn next_json(&mut self) -> Result<Option<ImportLine>, ImportReadError> {
        while let Some(bytes) = self.text.read_line()? {
            if !bytes.trim_ascii().is_empty() {
                return Ok(Some(ImportLine { number: self.text.line(), row: row_of_json(&bytes) }));
            }
        }
        Ok(None)
    }

    fn next_csv(&mut self) -> Result<Option<ImportLine>, ImportReadError> {
        let mut separator = None;
        while let Some(record) = import_csv::read_record(&mut self.text, self.header.as_ref())? {
            let Some(header) = &self.header else {
                match (separator, record.separator()?) {
                    (None, named @ Some(_)) => separator = named,
                    _ => self.header = Some(record.header(separator, are_known)?),
                }
                self.has_content = self.header.is_some();
                continue;
            };
            let number = record.line;
            if let Some(cells) = record.cells(header).transpose() {
                let row = cells.and_then(|cells| row_of_cells(header, cells));
                return Ok(Some(ImportLine { number, row }));
            }
        }
        Ok(None)
    }
}

/// Judges the names of a CSV header.
fn are_known(names: &[Option<String>]) -> Result<(), String> {
    names.iter().flatten().try_for_each(|name| known(name, ImportFormat::Csv))?;
    if names.iter().flatten().any(|name| name == SUBJECT) {
        Ok(())
    } else {
        Err("the header has no column \"subject\"".to_owned())
    }
}

fn known(name: &str, format: ImportFormat) -> Result<(), String> {
    let of_json = [GRANTS, LIMITS].into_iter().filter(|_| format == ImportFormat::Jsonl);
    let fields = FIELDS.into_iter().map(str::to_owned).chain(ContactColumns::names());
    let fields: Vec<String> = fields.chain(of_json.map(str::to_owned)).collect();
    if fields.iter().any(|field| field == name) || name.starts_with(LIMIT_PREFIX) {
        return Ok(());
    }
    if nearest(name, &[LIMITS]).is_some() && format == ImportFormat::Csv {
        return Err(format!(
            "there is no field {name:?} in CSV: a metric has a column of its own, such as limit:requests"
        ));
    }
    let near = suggestion(name, &fields);
    Err(format!("there is no field {name:?}{near}, only {} and limit:METRIC", fields.join(", ")))
}

fn row_of_cells(header: &Header, cells: Vec<Cell>) -> Result<ImportRow, String> {
    let mut row = ImportRow::default();
    for (column, (name, Cell { text, was_trimmed })) in (1..).zip(header.names.iter().zip(cells)) {
        let Some(name) = name else {
            if text.is_empty() {
                continue;
            }
            return Err(format!("cell {column} stands in a column without a name"));
        };
        row.subject_was_trimmed |= name == SUBJECT && was_trimmed;
        row.set_cell(name, Some(text).filter(|text| !text.is_empty()))?;
    }
    Ok(row)
}

fn row_of_json(bytes: &[u8]) -> Result<ImportRow, String> {
    // Only the place is told, not the text: it may hold a secret.
    let broken = |error: serde_json::Error| format!("not a JSON object, at column {}", error.column());
    let object: serde_json::Map<String, Value> = serde_json::from_slice(bytes).map_err(broken)?;
    let mut row = ImportRow::default();
    for (name, value) in object {
        known(&name, ImportFormat::Jsonl).or_else(|error| if name == CONTACTS { Ok(()) } else { Err(error) })?;
        match value {
            Value::Object(limits) if name == LIMITS => limits.into_iter().try_for_each(|(metric, limit)| {
                let name = format!("{LIMIT_PREFIX}{metric}");
                row.set_cell(&name, text_of(&name, limit)?)
            })?,
            Value::Null if name == LIMITS => {}
            _ if name == LIMITS => {
                return Err(format!("{LIMITS} must be an object of limits by metric, such as {{\"requests\": 5000}}"));
            }
            value if name == GRANTS => row.grants = grants_of(value)?,
            value if name == CONTACTS => no_contacts(&value)?,
            Value::Array(items) if ContactColumns::is_column(&name) => {
                items.into_iter().try_for_each(|item| row.set_cell(&name, text_of(&name, item)?))?;
            }
            value => row.set_cell(&name, text_of(&name, value)?)?,
        }
    }
    Ok(row)
}

fn grants_of(value: Value) -> Result<Vec<NewGrant>, String> {
    let grants: Option<Vec<NewGrant>> =
        serde_json::from_value(value).map_err(|error| format!("{GRANTS} must be a list of grants: {error}"))?;
    let grants = grants.unwrap_or_default();
    match grants.iter().all(|grant| grant.id.is_some()) {
        true => Ok(grants),
        false => Err(format!("{GRANTS}: each needs an id, so that another import does not give it again")),
    }
}

fn no_contacts(value: &Value) -> Result<(), String> {
    if value.is_null() || value.as_array().is_some_and(Vec::is_empty) {
        return Ok(());
    }
    let names = AddressArgs::names().join(" and ");
    Err(format!("{CONTACTS} must be empty, because they are listed without secrets: use the fields {names}"))
}

/// The text that a value stands for in a cell of this column. A list of text and numbers becomes its parts with
/// separators.
fn text_of(name: &str, value: Value) -> Result<Option<String>, String> {
    let separator = if name.starts_with(LIMIT_PREFIX) { " " } else { "," };
    let takes_lists = name.starts_with(LIMIT_PREFIX) || name.ends_with("thresholds") || name.ends_with("_metrics");
    let part = |value: Value| match value {
        Value::String(text) => Ok(text),
        Value::Number(number) => Ok(number.to_string()),
        _ => Err(format!("{name} must be text, a number, or (limits, thresholds and contacts) a list of those")),
    };
    match value {
        Value::Null => Ok(None),
        Value::Array(items) if takes_lists => {
            let parts: Vec<String> = items.into_iter().map(part).collect::<Result<_, _>>()?;
            Ok(Some(parts.join(separator)))
        }
        Value::Object(headers) if name.ends_with("_headers") => Ok(Some(Value::Object(headers).to_string())),
        value => part(value).map(Some),
    }
}

impl ImportRow {
    /// Takes one cell. An empty one leaves its setting alone; it keeps its place among addresses and secrets.
    fn set_cell(&mut self, name: &str, value: Option<String>) -> Result<(), String> {
        if ContactColumns::is_column(name) {
            self.contacts.push(name, value);
            return Ok(());
        }
        if let Some(value) = value
            && self.settings.insert(name.to_owned(), value).is_some()
        {
            return Err(format!("{name} is set twice"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<(u64, Result<ImportRow, String>)> {
        let mut rows = ImportReader::new(text.as_bytes(), None).expect("readable");
        let mut lines = Vec::new();
        while let Some(ImportLine { number, row }) = rows.next_line().expect("readable") {
            lines.push((number, row));
        }
        lines
    }

    /// Spreadsheets write quotes, doubled quotes, CRLF, a byte order mark and cells with line ends.
    #[test]
    fn csv_of_spreadsheets_is_read() {
        let lines = lines(
            "\u{feff}subject,email,thresholds\r\n\"a, \"\"b\"\"\",x@y.test,\"50,80\"\r\n\r\n\"two\nlines\",,\r\nlast,,90",
        );
        let numbers: Vec<u64> = lines.iter().map(|(number, _)| *number).collect();
        assert_eq!(numbers, [2, 4, 6]);
        let settings = |line: usize| &lines[line].1.as_ref().expect("a row").settings;
        assert_eq!((settings(0)["subject"].as_str(), settings(0)["thresholds"].as_str()), ("a, \"b\"", "50,80"));
        assert_eq!(settings(1)["subject"], "two\nlines");
    }

    /// The same table as four spreadsheets save it: by the language of the system, as Unicode text, and on an old Mac.
    #[test]
    fn separators_encodings_and_line_ends_of_spreadsheets_are_read() {
        let table = "subject,plan,email\r\nalice,free,a@b.test\r\n\"b,c\",pro,\r\n";
        let semicolons = table.replace(',', ";").replace("\"b;c\"", "\"b,c\"");
        let tabs = table.replace(',', "\t").replace("\"b\tc\"", "\"b,c\"");
        let utf_16 = |text: &str, bytes: fn(u16) -> [u8; 2]| -> Vec<u8> {
            "\u{feff}".encode_utf16().chain(text.encode_utf16()).flat_map(bytes).collect()
        };
        let files = [
            table.as_bytes().to_vec(),
            semicolons.as_bytes().to_vec(),
            tabs.as_bytes().to_vec(),
            format!("sep=;\r\n{semicolons}").into_bytes(),
            format!("\u{feff}\"SEP=,\"\n{table}").into_bytes(),
            table.replace("\r\n", "\r").into_bytes(),
            table.replace("\r\n", "\n").into_bytes(),
            utf_16(&tabs, u16::to_le_bytes),
            utf_16(&semicolons.replace("\r\n", "\r"), u16::to_be_bytes),
            // Empty columns and rows.
            b"subject,,plan,email,,\n,,,,,\nalice,,free,a@b.test,,\n\"b,c\",,pro\t,\n,,,\n".to_vec(),
        ];
        for file in files {
            let told = String::from_utf8_lossy(&file).into_owned();
            let mut reader = ImportReader::new(file.as_slice(), None).expect("readable");
            let mut rows = Vec::new();
            while let Some(line) = reader.next_line().unwrap_or_else(|error| panic!("{told:?}: {error}")) {
                rows.push(line.row.unwrap_or_else(|error| panic!("{told:?}: {error}")).settings);
            }
            let cells: Vec<(&str, &str)> = rows.iter().map(|row| (&*row["subject"], &*row["plan"])).collect();
            assert_eq!(cells, [("alice", "free"), ("b,c", "pro")], "{told:?}");
        }
    }

    /// A file that could mean several texts must not be imported as the wrong one.
    #[test]
    fn a_file_that_needs_a_guess_is_refused_with_what_to_do() {
        let fault = |bytes: &[u8]| {
            let mut reader = ImportReader::new(bytes, None).expect("readable");
            loop {
                match reader.next_line() {
                    Ok(Some(ImportLine { row: Err(why), .. })) => return why,
                    Ok(Some(_)) => {}
                    Ok(None) => return "read".to_owned(),
                    Err(error) => return error.to_string(),
                }
            }
        };
        let save_as = "save the file as \"CSV UTF-8\"";
        let without_mark: Vec<u8> = "subject\nalice\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
        assert!(fault(&without_mark).ends_with(save_as));
        assert_eq!(fault(b"subject\nJ\xfcrgen\n"), format!("not UTF-8: {save_as}"));
        assert_eq!(fault(b"subject\ralice\r\nbob"), format!("line 3: line ends are mixed, CR and LF: {save_as}"));
        assert_eq!(fault(b"sep=|\nsubject|plan\n"), "line 1: sep= must name a comma, a semicolon or a tab");
        assert!(fault(b"sep=;\nsubject,plan\n").starts_with("line 2: there is no field \"subject,plan\""));
        assert!(fault(b"subject;plna\n").starts_with("line 1: there is no field \"plna\" (did you mean \"plan\"?)"));
        assert_eq!(fault(b"subject,,plan\nalice,x,free\n"), "cell 2 stands in a column without a name");
        for empty in ["", "\u{feff}", "\n \r\n", "sep=,\n"] {
            assert_eq!(fault(empty.as_bytes()), "the file is empty", "{empty:?}");
        }
        assert_eq!(fault(b"subject,plan\n"), "read", "a table without rows");
    }

    /// A bad line must be told with its number, and not take the next with it.
    #[test]
    fn a_bad_line_stands_alone() {
        let lines = lines("subject,plan\nalice\n\"bob\"x,free\ncarol,free\n");
        assert!(lines[0].1.is_err() && lines[1].1.is_err());
        assert_eq!((lines[2].0, lines[2].1.is_ok()), (4, true));
    }

    /// Two stray quotes took all lines between them for one cell, and only the first of those lines was reported.
    #[test]
    fn a_quote_inside_a_cell_spoils_only_its_line() {
        for (text, bad) in [
            ("subject,plan\nal\"ice,free\ncarol;\"x,free\ndave,free\nbo\"b,free\n", [true, true, false, true]),
            (
                "subject\tplan\na\tsay \"x\"\n\"b\"\"\tc\"\tfree\n\"c\"x\"\tfree\nd,\"\tfree\n",
                [true, false, true, true],
            ),
        ] {
            let read: Vec<(u64, bool)> = lines(text).into_iter().map(|(line, row)| (line, row.is_err())).collect();
            assert_eq!(read, [2, 3, 4, 5].into_iter().zip(bad).collect::<Vec<_>>(), "{text}");
        }
    }

    /// A forgotten quote would otherwise swallow the file.
    #[test]
    fn an_open_quote_ends_the_import_with_its_line() {
        let mut rows = ImportReader::new("subject\n\"alice\nbob\n".as_bytes(), None).expect("readable");
        assert!(matches!(rows.next_line(), Err(ImportReadError::Endless { line: 2 })));
    }

    /// The nth secret belongs to the nth webhook, also when a cell between is empty.
    #[test]
    fn empty_cells_keep_the_places_of_webhooks_and_secrets() {
        let lines = lines(
            "subject,webhook,webhook_secret,webhook,webhook_secret\nalice,https://a.test,,https://b.test,whsec_b\n",
        );
        let mut expected = ContactColumns::default();
        for (url, secret) in [("https://a.test", None), ("https://b.test", Some("whsec_b"))] {
            expected.push("webhook", Some(url.to_owned()));
            expected.push("webhook_secret", secret.map(str::to_owned));
        }
        assert_eq!(lines[0].1.as_ref().expect("a row").contacts, expected);
    }

    /// Limits in the form in which the HTTP API takes them need not be rewritten for an import.
    #[test]
    fn json_lines_take_limits_in_the_form_of_the_api() {
        let row = |limits: &str| lines(&format!("{{\"subject\":\"a\",\"limits\":{limits}}}")).remove(0).1;
        let limits = row(r#"{"requests":5000,"calls":["600/hour","7/day"],"images":null}"#).expect("a row").settings;
        let taken: Vec<(&str, &str)> = limits.iter().map(|(metric, limit)| (metric.as_str(), limit.as_str())).collect();
        assert_eq!(taken, [("limit:calls", "600/hour 7/day"), ("limit:requests", "5000"), ("subject", "a")]);
        assert_eq!(row("null").expect("a row").settings.len(), 1);
        for bad in ["5000", "\"5000\"", "[5000]"] {
            let error = row(bad).expect_err(bad);
            assert_eq!(error, r#"limits must be an object of limits by metric, such as {"requests": 5000}"#, "{bad}");
        }
        let twice = row("{\"requests\":1},\"limit:requests\":2").expect_err("which one?");
        assert_eq!(twice, "limit:requests is set twice");
        let of_csv = ImportReader::new("subject,limits\na,5\n".as_bytes(), None).expect("readable").next_line();
        assert!(of_csv.expect_err("no such column").to_string().ends_with("as limit:requests"));
    }

    /// JSON says the same with numbers and lists.
    #[test]
    fn json_lines_take_numbers_and_lists() {
        let lines = lines(
            "{\"subject\":\"alice\",\"limit:requests\":5000,\"limit:calls\":[\"600/hour\",7],\"billing_day\":15,\"thresholds\":[50,80],\"email\":[\"a@b.test\"]}\n\n{\"subject\":\"x\",\"plna\":1}\n{",
        );
        let row = lines[0].1.as_ref().expect("a row");
        let settings =
            ["limit:requests", "limit:calls", "billing_day", "thresholds"].map(|name| row.settings[name].as_str());
        assert_eq!(settings, ["5000", "600/hour 7", "15", "50,80"]);
        assert_eq!(row.contacts, ContactColumns::default().with("email", vec!["a@b.test".to_owned()]));
        assert!(lines[1].1.as_ref().is_err_and(|why| why.contains("did you mean \"plan\"")));
        for near in ["limit", "Limits"] {
            let error = row_of_json(format!("{{\"{near}\":{{}}}}").as_bytes()).expect_err(near);
            assert!(
                error.contains("(did you mean \"limits\"?)") && error.ends_with("limits and limit:METRIC"),
                "{error}"
            );
        }
        assert_eq!((lines[2].0, lines[2].1.is_err()), (4, true));
    }

    /// A field takes any text, so a value of another kind would become a subject or a plan that nobody meant.
    #[test]
    fn a_value_of_another_kind_is_refused() {
        for bad in [
            r#"{"subject":["alice","bob"]}"#,
            r#"{"subject":true}"#,
            r#"{"subject":{"id":1}}"#,
            r#"{"plan":["free"]}"#,
            r#"{"thresholds":[80,null]}"#,
            r#"{"limits":{"requests":{}}}"#,
        ] {
            let error = row_of_json(bad.as_bytes()).expect_err(bad);
            assert!(error.contains("must be text, a number, or"), "{bad}: {error}");
        }
    }
}
