//! The text of each template in each locale: the embedded ones, replaced by the operator's files. Reads files only
//! while it is built.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::{Path, PathBuf};

use crate::channels::error::ChannelError;
use crate::channels::templating;
use crate::types::Locale;

/// The setting with the operator's folder.
pub(super) const SETTING: &str = "email.templates";

/// Names the templates, and embeds them in each locale. The folder in the repository has the same structure as an
/// operator's.
macro_rules! shipped {
    ($($name:literal),*) => {
        /// The templates, by file name. Each locale has all of them, its own or those of its fallback.
        pub(super) const NAMES: [&str; [$($name),*].len()] = [$($name),*];
        const SHIPPED: [(&str, [&str; NAMES.len()]); 2] = [
            ("en", [$(include_str!(concat!("../../../templates/", $name))),*]),
            ("vi", [$(include_str!(concat!("../../../templates/vi/", $name))),*]),
        ];
    };
}

shipped!(
    "subject.txt",
    "alert.txt",
    "alert.html",
    "verify_subject.txt",
    "verify.txt",
    "verify.html",
    "disabled_subject.txt",
    "disabled.txt",
    "grant_expires_subject.txt",
    "grant_expires.txt",
    "grant_expires.html",
    "usage_notice_subject.txt",
    "usage_notice.txt",
    "resolved_subject.txt",
    "resolved.txt",
    "notice.html",
    "alerts_subject.txt",
    "alerts.txt",
    "alerts.html",
    "prefix.txt"
);

/// The templates of one locale, by name.
type LocaleTemplates = BTreeMap<&'static str, TemplateText>;

/// The text of a template.
#[derive(Debug, Clone)]
pub(super) struct TemplateText {
    pub(super) text: String,
    /// The operator's file; `None` for a shipped one.
    pub(super) file: Option<PathBuf>,
}

/// The templates of every locale that has some of its own.
#[derive(Debug)]
pub(super) struct TemplateFiles {
    /// The embedded templates and those of the operator.
    written: BTreeMap<Locale, LocaleTemplates>,
    /// For readers of other languages.
    default: Locale,
    /// The operator's files that have a template's ending but no template's name.
    unused: Vec<PathBuf>,
}

impl TemplateFiles {
    /// The embedded templates, replaced by those of the operator's folder. Files in the folder itself are in the
    /// language of `default`, and files in a subfolder in the language of its name. If a locale lacks a template, it
    /// uses that of its fallback locale, then that of `default`, then the English one.
    ///
    /// # Errors
    ///
    /// The folder can't be read or has no template, or a subfolder with templates is not named by a locale.
    pub(super) fn read(directory: Option<&Path>, default: &Locale) -> Result<Self, ChannelError> {
        let shipped = SHIPPED.map(|(locale, texts)| {
            let sources = texts.map(|text| TemplateText { text: text.to_owned(), file: None });
            (Locale::parse(locale).expect("a test reads it"), NAMES.into_iter().zip(sources).collect())
        });
        let mut files = Self { written: shipped.into(), default: default.clone(), unused: Vec::new() };
        if let Some(directory) = directory {
            files.replace_by(directory)?;
        }
        Ok(files)
    }

    /// Warnings about files that are ignored.
    pub(super) fn warnings(&self) -> impl Iterator<Item = String> {
        let told = |path: &PathBuf| {
            format!("{SETTING}: {path:?} is ignored, because no template has this name: {}", NAMES.join(", "))
        };
        self.unused.iter().map(told)
    }

    /// The locales that have their own templates.
    pub(super) fn locales(&self) -> impl Iterator<Item = &Locale> {
        self.written.keys()
    }

    /// The locale whose templates a reader with this locale gets.
    pub(super) fn used_for(&self, locale: Option<&Locale>) -> &Locale {
        let found = self.fallbacks(locale).find_map(|locale| self.written.get_key_value(&locale));
        found.expect("English is shipped").0
    }

    /// A template of one of the locales: its own, or that of its fallback.
    pub(super) fn source(&self, locale: &Locale, name: &str) -> &TemplateText {
        let found = self.fallbacks(Some(locale)).find_map(|locale| self.written.get(&locale)?.get(name));
        found.expect("each is shipped in English")
    }

    fn fallbacks(&self, locale: Option<&Locale>) -> impl Iterator<Item = Locale> {
        let own = locale.into_iter().flat_map(Locale::fallbacks);
        own.chain(self.default.fallbacks()).chain([Locale::english()])
    }

    /// Replaces templates by those of the operator's folder.
    fn replace_by(&mut self, directory: &Path) -> Result<(), ChannelError> {
        let refused = |problem: &dyn Display| Err(ChannelError::of_setting(SETTING, problem));
        let in_default = self.read_folder(directory)?;
        let mut own: BTreeMap<Locale, LocaleTemplates> = BTreeMap::new();
        for path in templating::entries_of(SETTING, directory)? {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            // Names with a leading dot belong to other programs: Kubernetes mounts a folder `..data` with the same
            // files.
            if name.starts_with('.') || !path.is_dir() {
                continue;
            }
            match Locale::parse(&name) {
                Ok(locale) => {
                    let sources = self.read_folder(&path)?;
                    if !sources.is_empty() && own.insert(locale.clone(), sources).is_some() {
                        return refused(&format_args!("{directory:?} has two folders of the locale {locale}"));
                    }
                }
                Err(error) if NAMES.into_iter().any(|name| path.join(name).exists()) => {
                    return refused(&format_args!("{path:?} holds templates, but its name is not a locale: {error}"));
                }
                // Another folder.
                Err(_) => {}
            }
        }
        if in_default.is_empty() && own.is_empty() {
            // A folder that replaces no template is probably the wrong one.
            let names = NAMES.join(", ");
            return refused(&format_args!(
                "{directory:?} holds no template, allowed are the files {names}, also in folders named by a locale such as vi"
            ));
        }
        let of_default = self.default.fallbacks().filter(|_| !in_default.is_empty());
        for (locale, sources) in of_default.map(|locale| (locale, in_default.clone())).chain(own) {
            self.written.entry(locale).or_default().extend(sources);
        }
        Ok(())
    }

    /// Reads the templates of a folder. Files with a template's ending but no template's name are reported as unused;
    /// others are the operator's notes.
    fn read_folder(&mut self, folder: &Path) -> Result<LocaleTemplates, ChannelError> {
        let mut sources = LocaleTemplates::new();
        for path in templating::entries_of(SETTING, folder)? {
            let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            match NAMES.into_iter().find(|name| *name == file) {
                Some(name) => {
                    let text = templating::read_file(SETTING, &path)?;
                    sources.insert(name, TemplateText { text, file: Some(path) });
                }
                None if !file.starts_with('.') && [".txt", ".html"].iter().any(|ending| file.ends_with(ending)) => {
                    self.unused.push(path);
                }
                None => {}
            }
        }
        Ok(sources)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn locale(tag: &str) -> Locale {
        tag.parse().expect("a tag")
    }

    /// A folder with these files. Each contains its own path.
    fn folder(files: &[&str]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a folder");
        for file in files {
            let path = folder.path().join(file);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("created");
            std::fs::write(path, file).expect("written");
        }
        folder
    }

    /// The source of a reader's text: the operator's file, or `shipped:vi`.
    fn text(files: &TemplateFiles, reader: &str, name: &str) -> String {
        let source = files.source(files.used_for(Some(&locale(reader))), name);
        let shipped = || {
            let found = SHIPPED.into_iter().find(|(_, texts)| texts.contains(&source.text.as_str()));
            format!("shipped:{}", found.expect("it is shipped").0)
        };
        source.file.as_ref().map_or_else(shipped, |_| source.text.clone())
    }

    /// A translated page of the daemon in this folder would have no effect, so it must be reported.
    #[test]
    fn files_that_replace_no_template_are_named() {
        let folder = folder(&["subject.txt", "consent.html", "vi/alrt.txt", "vi/alert.txt", "README.md", "_old/x.txt"]);
        let files = TemplateFiles::read(Some(folder.path()), &locale("en")).expect("legal");
        let warnings: Vec<String> = files.warnings().collect();
        assert_eq!(warnings.len(), 2, "{warnings:?}");
        assert!(warnings[0].contains("consent.html\" is ignored") && warnings[1].contains("vi/alrt.txt\" is ignored"));
    }

    /// A reader who gets another language can't read the alert. One file of a locale must not disable the other
    /// templates.
    #[test]
    fn each_file_falls_back_by_itself_from_the_region_to_the_default_to_english() {
        let folder = folder(&["subject.txt", "vi/subject.txt", "vi-VN/alert.txt", "de/alert.txt"]);
        let files = TemplateFiles::read(Some(folder.path()), &locale("fr-CA")).expect("legal");
        for (reader, name, expected) in [
            ("vi-vn", "alert.txt", "vi-VN/alert.txt"),
            ("vi-VN", "subject.txt", "vi/subject.txt"),
            ("vi-VN", "alert.html", "shipped:vi"),
            ("vi-AU", "subject.txt", "vi/subject.txt"),
            ("vi", "alert.txt", "shipped:vi"),
            ("de-AT", "alert.txt", "de/alert.txt"),
            ("de", "subject.txt", "subject.txt"),
            ("de", "alert.html", "shipped:en"),
            ("fr", "subject.txt", "subject.txt"),
            ("fr-CA", "alert.txt", "shipped:en"),
            ("ja", "subject.txt", "subject.txt"),
            ("en-GB", "subject.txt", "shipped:en"),
        ] {
            assert_eq!(text(&files, reader, name), expected, "{reader} {name}");
        }
        assert_eq!(files.used_for(None), &locale("fr-CA"));
    }

    /// Windows editors write a byte order mark before the text: it would appear in every Subject line.
    #[test]
    fn a_byte_order_mark_is_no_part_of_a_template() {
        let folder = folder(&[]);
        std::fs::write(folder.path().join("subject.txt"), "\u{feff}{{ subject }}").expect("written");
        let files = TemplateFiles::read(Some(folder.path()), &locale("en")).expect("legal");
        assert_eq!(text(&files, "en", "subject.txt"), "{{ subject }}");
    }

    /// Files in the folder itself keep the effect that they had before there were locales.
    #[test]
    fn files_without_a_locale_are_those_of_the_default_one() {
        let folder = folder(&["subject.txt"]);
        let read = |default| TemplateFiles::read(Some(folder.path()), &locale(default)).expect("legal");
        let english = read("en");
        assert_eq!(
            (text(&english, "en-US", "subject.txt"), text(&english, "vi", "subject.txt")),
            ("subject.txt".into(), "shipped:vi".into())
        );
        let vietnamese = read("vi");
        assert_eq!(text(&vietnamese, "vi", "subject.txt"), "subject.txt");
        assert_eq!(text(&vietnamese, "en", "subject.txt"), "shipped:en");
        assert_eq!(
            (text(&vietnamese, "ja", "subject.txt"), text(&vietnamese, "ja", "alert.txt")),
            ("subject.txt".into(), "shipped:vi".into())
        );
        assert_eq!(TemplateFiles::read(None, &locale("ja")).expect("legal").used_for(None), &locale("en"));
    }

    /// A translation in a misspelled folder would have no effect, without a warning.
    #[test]
    fn folders_that_no_locale_names_are_refused_where_they_hold_templates() {
        let refused = |files: &[&str]| {
            let folder = folder(files);
            TemplateFiles::read(Some(folder.path()), &locale("en")).expect_err("refused").to_string()
        };
        let misspelt = refused(&["subject.txt", "vi_VN/subject.txt"]);
        assert!(
            misspelt
                .contains(r#"/vi_VN" holds templates, but its name is not a locale: "vi_VN" is not a language tag"#),
            "{misspelt}"
        );
        assert!(refused(&["vi-VN/subject.txt", "vi-vn/subject.txt"]).contains("two folders of the locale vi-VN"));
        assert!(refused(&["vi/readme.md"]).contains("holds no template"));
        let others = folder(&["vi/subject.txt", "..data/subject.txt", "lost+found/x", "assets/logo.svg"]);
        let files = TemplateFiles::read(Some(others.path()), &locale("en")).expect("legal");
        assert_eq!(files.locales().count(), SHIPPED.len());
    }
}
