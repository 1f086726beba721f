//! The sections of an HAProxy configuration that say where requests go.

use std::collections::BTreeMap;

use super::words::words;
use crate::ring::finding::BadLine;

/// The keywords that begin a section in version 2.6.
const SECTIONS: [&str; 16] = [
    "backend",
    "cache",
    "defaults",
    "fcgi-app",
    "frontend",
    "global",
    "http-errors",
    "listen",
    "log-forward",
    "mailers",
    "namespace_list",
    "peers",
    "program",
    "resolvers",
    "ring",
    "userlist",
];

/// Most servers of one `server-template` that are counted.
const TEMPLATE_SERVERS_MAX: usize = 4096;

/// Most servers of a configuration.
const SERVERS_MAX: usize = 1 << 16;

/// The sections that were read.
#[derive(Debug, Default)]
pub(crate) struct Sections {
    pub(crate) backends: Vec<Backend>,
    pub(super) frontends: Vec<Frontend>,
    /// The line of the first `.if`.
    pub(super) condition_line: Option<usize>,
}

/// A `backend` or `listen` section, with what it inherits.
#[derive(Debug)]
pub(crate) struct Backend {
    /// `backend` or `listen`.
    pub(super) kind: &'static str,
    pub(super) name: String,
    pub(super) line: usize,
    pub(super) settings: Settings,
    pub(super) servers: Vec<Server>,
    /// The ports of `bind` lines, for `listen`.
    pub(super) ports: Vec<u16>,
}

/// A `frontend`, or the frontend's part of a `listen` section.
#[derive(Debug, Default)]
pub(super) struct Frontend {
    pub(super) ports: Vec<u16>,
    /// The backends of `use_backend` and `default_backend`.
    pub(super) backends: Vec<String>,
}

/// The settings that sections inherit from `defaults`.
#[derive(Clone, Debug, Default)]
pub(super) struct Settings {
    /// The lines of the settings.
    pub(super) lines: BTreeMap<&'static str, usize>,
    pub(super) http: bool,
    /// The words after `balance`; `roundrobin` if none.
    pub(super) balance: Vec<String>,
    pub(super) hash_type: Vec<String>,
    pub(super) balance_factor: u64,
    /// `option httpchk`, and the URIs of `http-check send`.
    pub(super) http_check: bool,
    pub(super) check_uris: Vec<String>,
    pub(super) redispatch: bool,
    pub(super) retries: Option<u64>,
    pub(super) retry_on: Vec<String>,
    /// The setting that binds a client to a server, if there is one: `cookie`, `stick`, …
    pub(super) persistence: Option<&'static str>,
    server: Parameters,
}

/// The parameters of a server that matter here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Parameters {
    pub(super) checked: bool,
    pub(super) backup: bool,
    pub(super) weight: Option<u64>,
    pub(super) id: Option<u64>,
}

/// A server, or one of a `server-template`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Server {
    pub(super) name: String,
    /// Host and port, in lower case.
    pub(super) address: String,
    pub(super) port: Option<u16>,
    pub(super) parameters: Parameters,
}

/// True if the first statement begins a section.
pub(crate) fn recognizes(text: &str) -> bool {
    let words = |line| words(line).unwrap_or_default();
    let first = text.lines().map(words).find(|words| !words.is_empty());
    first.is_some_and(|words| {
        let key = words[0].as_str();
        let yaml = words.get(1).is_some_and(|word| word.starts_with(':'));
        (SECTIONS.contains(&key) || is_condition(key)) && !yaml
    })
}

fn is_condition(word: &str) -> bool {
    matches!(
        word,
        ".if" | ".elif" | ".else" | ".endif" | ".notice" | ".warning" | ".alert" | ".diag"
    )
}

/// Reads the sections.
pub(crate) fn parse(text: &str) -> Result<Sections, BadLine> {
    let mut reader = Reader::default();
    for (index, line) in text.lines().enumerate() {
        let line_number = index + 1;
        words(line)
            .map_err(str::to_owned)
            .and_then(|words| reader.statement(line_number, &words))
            .map_err(|problem| BadLine::new(line_number, problem))?;
    }
    reader.close();
    Ok(reader.sections)
}

#[derive(Default)]
struct Reader {
    sections: Sections,
    /// The last `defaults`, which sections without `from` inherit from.
    defaults: Settings,
    named_defaults: BTreeMap<String, Settings>,
    section: Section,
    /// Servers of the sections that ended.
    servers: usize,
}

/// The section that lines belong to.
#[derive(Default)]
enum Section {
    #[default]
    Other,
    Defaults {
        name: Option<String>,
        settings: Settings,
    },
    Frontend(Frontend),
    Backend(Backend, Frontend),
}

impl Reader {
    fn statement(&mut self, line: usize, words: &[String]) -> Result<(), String> {
        let Some((key, arguments)) = words.split_first() else {
            return Ok(());
        };
        if is_condition(key) {
            self.sections.condition_line.get_or_insert(line);
            return Ok(());
        }
        if SECTIONS.contains(&key.as_str()) {
            self.close();
            self.section = self.open(line, key, arguments)?;
            return Ok(());
        }
        match &mut self.section {
            Section::Other => Ok(()),
            Section::Defaults { settings, .. } => settings.set(line, key, arguments),
            Section::Frontend(frontend) => {
                frontend.set(key, arguments);
                Ok(())
            }
            Section::Backend(backend, frontend) => {
                frontend.set(key, arguments);
                backend.set(line, key, arguments)?;
                match self.servers + backend.servers.len() > SERVERS_MAX {
                    true => Err(format!("more than {SERVERS_MAX} servers")),
                    false => Ok(()),
                }
            }
        }
    }

    fn open(&self, line: usize, key: &str, arguments: &[String]) -> Result<Section, String> {
        let from = arguments.iter().position(|word| word == "from");
        let name = arguments.first().filter(|_| from != Some(0)).cloned();
        let settings = match from {
            Some(at) => self.inherited(arguments.get(at + 1))?,
            // A `defaults` section resets everything.
            None if key == "defaults" => Settings::default(),
            None => self.defaults.clone(),
        };
        Ok(match key {
            "defaults" => Section::Defaults { name, settings },
            "frontend" => Section::Frontend(Frontend::default()),
            "backend" | "listen" => {
                let name = name.ok_or_else(|| format!("`{key}` has no name"))?;
                let kind = if key == "listen" { "listen" } else { "backend" };
                Section::Backend(
                    Backend::new(kind, name, line, settings),
                    Frontend::default(),
                )
            }
            _ => Section::Other,
        })
    }

    fn inherited(&self, name: Option<&String>) -> Result<Settings, String> {
        let name = name.ok_or("`from` names no `defaults`")?;
        let settings = self.named_defaults.get(name).cloned();
        settings.ok_or_else(|| format!("there is no `defaults {name}` before this line"))
    }

    /// Ends the section.
    fn close(&mut self) {
        match std::mem::take(&mut self.section) {
            Section::Other => {}
            Section::Defaults { name, settings } => {
                self.defaults = settings.clone();
                if let Some(name) = name {
                    self.named_defaults.insert(name, settings);
                }
            }
            Section::Frontend(frontend) => self.sections.frontends.push(frontend),
            Section::Backend(mut backend, frontend) => {
                backend.ports.clone_from(&frontend.ports);
                self.servers += backend.servers.len();
                self.sections.backends.push(backend);
                self.sections.frontends.push(frontend);
            }
        }
    }
}

impl Frontend {
    fn set(&mut self, key: &str, arguments: &[String]) {
        let Some(first) = arguments.first() else {
            return;
        };
        match key {
            "bind" => self.ports.extend(first.split(',').filter_map(port)),
            "use_backend" | "default_backend" => self.backends.push(first.clone()),
            _ => {}
        }
    }
}

/// The port at the end of an address.
fn port(address: &str) -> Option<u16> {
    address.rsplit_once(':')?.1.parse().ok()
}

impl Backend {
    fn new(kind: &'static str, name: String, line: usize, settings: Settings) -> Self {
        Backend {
            kind,
            name,
            line,
            settings,
            servers: Vec::new(),
            ports: Vec::new(),
        }
    }

    fn set(&mut self, line: usize, key: &str, arguments: &[String]) -> Result<(), String> {
        match (key, arguments) {
            ("server", [name, address, parameters @ ..]) => {
                self.servers.push(self.server(name, address, parameters));
                Ok(())
            }
            ("server-template", [prefix, numbers, address, parameters @ ..]) => {
                for number in template_numbers(numbers)? {
                    let name = format!("{prefix}{number}");
                    self.servers.push(self.server(&name, address, parameters));
                }
                Ok(())
            }
            ("server" | "server-template", _) => Err(format!("`{key}` has no name or no address")),
            _ => self.settings.set(line, key, arguments),
        }
    }

    fn server(&self, name: &str, address: &str, parameters: &[String]) -> Server {
        let mut own = self.settings.server.clone();
        own.read(parameters);
        let address = address.to_ascii_lowercase();
        let address = ["ipv4@", "ipv6@", "tcp@", "tcp4@", "tcp6@"]
            .iter()
            .find_map(|prefix| address.strip_prefix(prefix))
            .unwrap_or(&address);
        Server {
            name: name.to_owned(),
            address: address.to_owned(),
            port: port(address),
            parameters: own,
        }
    }
}

/// The numbers of a `server-template`: `3` or `2-5`.
fn template_numbers(text: &str) -> Result<Vec<usize>, String> {
    let (first, last) = text.split_once('-').unwrap_or(("1", text));
    let bad = |_| format!("`server-template` has `{text}` servers: expected a number or a range");
    let first: usize = first.parse().map_err(bad)?;
    let last: usize = last.parse().map_err(bad)?;
    Ok((first..=last).take(TEMPLATE_SERVERS_MAX).collect())
}

impl Settings {
    fn set(&mut self, line: usize, key: &str, arguments: &[String]) -> Result<(), String> {
        let first = arguments.first().map_or("", String::as_str);
        match key {
            "mode" => self.http = first == "http",
            "balance" => self.set_words("balance", line, arguments),
            "hash-type" => self.set_words("hash-type", line, arguments),
            "retry-on" => self.set_words("retry-on", line, arguments),
            "hash-balance-factor" => {
                self.balance_factor = number(key, first)?;
                self.lines.insert("hash-balance-factor", line);
            }
            "retries" => self.retries = Some(number(key, first)?),
            "option" => self.set_option(line, arguments, true),
            "no" if first == "option" => self.set_option(line, &arguments[1..], false),
            "http-check" if first == "send" => self.check_uris.extend(uri_of_send(arguments)),
            "default-server" => self.server.read(arguments),
            "cookie" => self.bind_clients("cookie", line),
            "stick" => self.bind_clients("stick", line),
            "appsession" => self.bind_clients("appsession", line),
            _ => {}
        }
        Ok(())
    }

    fn set_words(&mut self, key: &'static str, line: usize, arguments: &[String]) {
        let words = match key {
            "balance" => &mut self.balance,
            "hash-type" => &mut self.hash_type,
            _ => &mut self.retry_on,
        };
        *words = arguments.to_vec();
        self.lines.insert(key, line);
    }

    fn set_option(&mut self, line: usize, arguments: &[String], on: bool) {
        match arguments {
            [name, interval @ ..] if name == "redispatch" => {
                // An interval of 0 turns it off.
                self.redispatch = on && interval.first().is_none_or(|word| word != "0");
                self.lines.insert("redispatch", line);
            }
            [name, request @ ..] if name == "httpchk" => {
                self.http_check = on;
                self.check_uris = uri_of_option(request).into_iter().collect();
                self.lines.insert("httpchk", line);
            }
            // Another check replaces it.
            [name, ..] if name.ends_with("-check") && on => self.http_check = false,
            [name, ..] if name == "prefer-last-server" => {
                self.persistence = on.then_some("option prefer-last-server");
                self.lines.insert("persistence", line);
            }
            _ => {}
        }
    }

    fn bind_clients(&mut self, key: &'static str, line: usize) {
        self.persistence = Some(key);
        self.lines.insert("persistence", line);
    }
}

fn number(key: &str, text: &str) -> Result<u64, String> {
    text.parse()
        .map_err(|_| format!("`{key}` is `{text}`: expected a number"))
}

/// The URI of `option httpchk [[method] uri [version]]`.
fn uri_of_option(arguments: &[String]) -> Option<String> {
    match arguments {
        [] => None,
        [uri] => Some(uri.clone()),
        [_method, uri, ..] => Some(uri.clone()),
    }
}

/// The URI of `http-check send [meth method] [uri uri] …`.
fn uri_of_send(arguments: &[String]) -> Option<String> {
    let at = arguments
        .iter()
        .position(|word| word == "uri" || word == "uri-lf")?;
    arguments.get(at + 1).cloned()
}

impl Parameters {
    fn read(&mut self, words: &[String]) {
        let mut words = words.iter().map(String::as_str);
        while let Some(word) = words.next() {
            match word {
                "check" | "agent-check" => self.checked = true,
                "no-check" => self.checked = false,
                "backup" => self.backup = true,
                "no-backup" => self.backup = false,
                "track" => self.checked = words.next().is_some(),
                "weight" => self.weight = words.next().and_then(|word| word.parse().ok()),
                "id" => self.id = words.next().and_then(|word| word.parse().ok()),
                _ if has_argument(word) => _ = words.next(),
                _ => {}
            }
        }
    }
}

/// Parameters of servers whose next word is a value, and none of the words above.
fn has_argument(word: &str) -> bool {
    matches!(
        word,
        "addr"
            | "agent-addr"
            | "agent-inter"
            | "agent-port"
            | "agent-send"
            | "alpn"
            | "ca-file"
            | "check-alpn"
            | "check-proto"
            | "check-sni"
            | "check-via-socks4"
            | "ciphers"
            | "ciphersuites"
            | "cookie"
            | "crl-file"
            | "crt"
            | "downinter"
            | "error-limit"
            | "fall"
            | "fastinter"
            | "init-addr"
            | "inter"
            | "interface"
            | "log-proto"
            | "max-reuse"
            | "maxconn"
            | "maxqueue"
            | "minconn"
            | "namespace"
            | "npn"
            | "observe"
            | "on-error"
            | "on-marked-down"
            | "on-marked-up"
            | "pool-low-conn"
            | "pool-max-conn"
            | "pool-purge-delay"
            | "port"
            | "proto"
            | "proxy-v2-options"
            | "redir"
            | "resolve-net"
            | "resolve-opts"
            | "resolve-prefer"
            | "resolvers"
            | "rise"
            | "shard"
            | "sigalgs"
            | "slowstart"
            | "sni"
            | "socks4"
            | "source"
            | "ssl-max-ver"
            | "ssl-min-ver"
            | "tcp-ut"
            | "usesrc"
            | "verify"
            | "verifyhost"
            | "ws"
    )
}

#[cfg(test)]
mod tests;
