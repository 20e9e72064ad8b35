//! What a configuration says of one host.

use std::collections::BTreeMap;

use super::{LocalUser, lines::Line, pattern};
use crate::safety::{Refusal, destination::read_port};

/// Directives that change the route or the trust, with the value that changes nothing.
const REFUSED: &[(&str, &str)] = &[
    ("bindaddress", "*"),
    ("bindinterface", "none"),
    ("canonicalizehostname", "no"),
    ("hostkeyalias", ""),
    ("knownhostscommand", "none"),
    ("proxyusefdpass", "no"),
    ("revokedhostkeys", "none"),
    ("vmware", ""),
];

/// Directives without a bearing on where a connection goes or whom it trusts, because this program does not do what they
/// govern or is stricter than they can be.
const HARMLESS: &[&str] = &[
    "addkeystoagent",
    "batchmode",
    "canonicaldomains",
    "canonicalizefallbacklocal",
    "canonicalizemaxdots",
    "canonicalizepermittedcnames",
    "casignaturealgorithms",
    "certificatefile",
    "challengeresponseauthentication",
    "channeltimeout",
    "checkhostip",
    "cipher",
    "ciphers",
    "clearallforwardings",
    "compression",
    "compressionlevel",
    "connectionattempts",
    "connecttimeout",
    "controlmaster",
    "controlpath",
    "controlpersist",
    "dynamicforward",
    "enableescapecommandline",
    "enablesshkeysign",
    "escapechar",
    "exitonforwardfailure",
    "fingerprinthash",
    "forkafterauthentication",
    "forwardagent",
    "forwardx11",
    "forwardx11timeout",
    "forwardx11trusted",
    "gatewayports",
    "gssapiauthentication",
    "gssapidelegatecredentials",
    "gssapiclientidentity",
    "gssapikeyexchange",
    "gssapirenewalforcesrekey",
    "gssapiserveridentity",
    "gssapitrustdns",
    "hashknownhosts",
    "hostbasedacceptedalgorithms",
    "hostbasedauthentication",
    "hostbasedkeytypes",
    "hostkeyalgorithms",
    "ipqos",
    "kbdinteractiveauthentication",
    "kbdinteractivedevices",
    "kexalgorithms",
    "localcommand",
    "localforward",
    "loglevel",
    "logverbose",
    "macs",
    "nohostauthenticationforlocalhost",
    "numberofpasswordprompts",
    "obscurekeystroketiming",
    "passwordauthentication",
    "permitlocalcommand",
    "permitremoteopen",
    "pkcs11provider",
    "preferredauthentications",
    "protocol",
    "pubkeyacceptedalgorithms",
    "pubkeyacceptedkeytypes",
    "pubkeyauthentication",
    "rekeylimit",
    "remotecommand",
    "remoteforward",
    "requesttty",
    "requiredrsasize",
    "securitykeyprovider",
    "sendenv",
    "serveralivecountmax",
    "serveraliveinterval",
    "sessiontype",
    "setenv",
    "stdinnull",
    "streamlocalbindmask",
    "streamlocalbindunlink",
    "stricthostkeychecking",
    "syslogfacility",
    "tag",
    "tcpkeepalive",
    "tunnel",
    "tunneldevice",
    "updatehostkeys",
    "usekeychain",
    "verifyhostkeydns",
    "versionaddendum",
    "visualhostkey",
    "warnweakcrypto",
    "xauthlocation",
];

/// What the configuration says of one host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostSettings {
    /// `HostName`, or the host as asked for.
    pub host_name: String,
    /// The user to log in as.
    pub user: String,
    /// The port; 22 where nothing else is said.
    pub port: u16,
    /// How the host is reached through others.
    pub jumps: Vec<String>,
    /// Key files, in order.
    pub identity_files: Vec<String>,
    /// Only those key files, no other key of an agent.
    pub identities_only: bool,
    /// The agent's socket, `none`, or `SSH_AUTH_SOCK`.
    pub identity_agent: Option<String>,
    /// 4 or 6 where only one address family is to be used.
    pub address_family: Option<u8>,
    /// `UserKnownHostsFile` and `GlobalKnownHostsFile`, where set.
    pub known_hosts: Option<Vec<String>>,
    /// Directives that were ignored, as `file:line keyword`.
    pub ignored: Vec<String>,
}

#[derive(Default)]
struct Collector<'a> {
    host: &'a str,
    given_user: Option<&'a str>,
    given_port: Option<u16>,
    local_user: &'a str,
    first: BTreeMap<&'static str, (&'a Line, String)>,
    identity_files: Vec<String>,
    ignore_unknown: Vec<String>,
    ignored: Vec<String>,
    proxy: Option<(&'a Line, &'a str)>,
}

const SINGLE: &[&str] = &[
    "hostname",
    "user",
    "port",
    "identitiesonly",
    "identityagent",
    "addressfamily",
    "userknownhostsfile",
    "globalknownhostsfile",
];

pub(super) fn collect(
    files: &[Vec<Line>],
    host: &str,
    user: Option<&str>,
    port: Option<u16>,
    local: &LocalUser,
) -> Result<HostSettings, Refusal> {
    let mut collector = Collector {
        host,
        given_user: user,
        given_port: port,
        local_user: &local.name,
        ..Collector::default()
    };
    for file in files {
        collector.take_lines(file, true)?;
    }
    collector.finish(local)
}

impl<'a> Collector<'a> {
    fn take_lines(&mut self, lines: &'a [Line], outer: bool) -> Result<(), Refusal> {
        let mut active = outer;
        for line in lines {
            match line.keyword.as_str() {
                "host" => {
                    active =
                        outer && pattern::matches_list(self.host, line.arguments.iter().map(String::as_str))
                }
                "match" => active = outer && self.matches(line)?,
                "include" => {
                    for file in &line.included {
                        self.take_lines(file, active)?;
                    }
                }
                _ if active => self.take(line)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn matches(&self, line: &Line) -> Result<bool, Refusal> {
        let mut words = line.arguments.iter();
        let mut unsupported = None;
        let mut all = true;
        while let Some(word) = words.next() {
            let (negated, word) = word.strip_prefix('!').map_or((false, word.as_str()), |rest| (true, rest));
            let (criterion, inline) = match word.split_once('=') {
                Some((criterion, value)) => (criterion, Some(value)),
                None => (word, None),
            };
            let holds = match criterion.to_ascii_lowercase().as_str() {
                "all" => true,
                // Canonical names are refused, so there never is a second pass.
                "canonical" => false,
                "final" => {
                    unsupported = Some("Match final".to_owned());
                    continue;
                }
                name => {
                    let value = match inline {
                        Some(value) => value,
                        None => {
                            words.next().ok_or_else(|| line.bad(format!("Match {criterion} has no value")))?
                        }
                    };
                    match self.criterion(name, value)? {
                        Some(holds) => holds,
                        None => {
                            unsupported = Some(format!("Match {criterion}"));
                            continue;
                        }
                    }
                }
            };
            all &= holds != negated;
        }
        match unsupported {
            Some(directive) if all => Err(self.unsupported(line, directive)),
            _ => Ok(all),
        }
    }

    /// Whether a criterion with a value holds; `None` for one that is not supported.
    fn criterion(&self, name: &str, value: &str) -> Result<Option<bool>, Refusal> {
        let subject = match name {
            "host" => self.host_name()?.to_ascii_lowercase(),
            "originalhost" => self.host.to_owned(),
            "user" => self.user().to_owned(),
            "localuser" => self.local_user.to_owned(),
            _ => return Ok(None),
        };
        Ok(Some(pattern::matches_list(&subject, value.split(','))))
    }

    fn take(&mut self, line: &'a Line) -> Result<(), Refusal> {
        let keyword = line.keyword.as_str();
        let value = line.arguments.join(" ");
        if let Some(single) = SINGLE.iter().find(|single| **single == keyword) {
            self.first.entry(single).or_insert((line, value));
        } else if let Some((refused, _)) = REFUSED.iter().find(|(refused, _)| *refused == keyword) {
            self.first.entry(refused).or_insert((line, value));
        } else if keyword == "proxyjump" || keyword == "proxycommand" {
            self.proxy.get_or_insert((line, if keyword == "proxyjump" { "jump" } else { "command" }));
        } else if keyword == "identityfile" {
            self.identity_files.push(value);
        } else if keyword == "ignoreunknown" {
            self.ignore_unknown
                .extend(line.arguments.iter().flat_map(|list| list.split(',')).map(str::to_ascii_lowercase));
        } else if HARMLESS.contains(&keyword)
            || pattern::matches_list(keyword, self.ignore_unknown.iter().map(String::as_str))
        {
            self.ignored.push(format!("{}:{} {}", line.file, line.number, line.keyword));
        } else {
            return Err(self.unsupported(line, format!("the unknown directive {}", line.keyword)));
        }
        Ok(())
    }

    fn unsupported(&self, line: &Line, directive: String) -> Refusal {
        Refusal::UnsupportedDirective {
            file: line.file.to_string(),
            line: line.number,
            directive,
            host: self.host.to_owned(),
        }
    }

    fn value(&self, keyword: &str) -> Option<&str> {
        self.first.get(keyword).map(|(_, value)| value.as_str())
    }

    fn user(&self) -> &str {
        self.given_user.or_else(|| self.value("user")).unwrap_or(self.local_user)
    }

    fn port(&self) -> Result<u16, Refusal> {
        match (self.given_port, self.first.get("port")) {
            (Some(port), _) => Ok(port),
            (None, None) => Ok(22),
            (None, Some((line, text))) => {
                read_port(text).ok_or_else(|| line.bad(format!("{text} is not a port")))
            }
        }
    }

    fn host_name(&self) -> Result<String, Refusal> {
        match self.first.get("hostname") {
            None => Ok(self.host.to_owned()),
            Some((line, text)) => expand(text, &[('h', self.host)]).map_err(|why| line.bad(why)),
        }
    }

    fn finish(self, local: &LocalUser) -> Result<HostSettings, Refusal> {
        for (keyword, neutral) in REFUSED {
            if let Some((line, value)) = self.first.get(keyword)
                && !value.eq_ignore_ascii_case(neutral)
            {
                return Err(self.unsupported(line, line.keyword.clone()));
            }
        }
        let host_name = self.host_name()?;
        let port = self.port()?;
        let port_text = port.to_string();
        let tokens = [
            ('h', host_name.as_str()),
            ('n', self.host),
            ('p', port_text.as_str()),
            ('r', self.user()),
            ('u', self.local_user),
            ('d', local.home.as_str()),
        ];
        let identity_files = self.identity_files.iter().filter(|file| !file.eq_ignore_ascii_case("none"));
        let identity_files =
            identity_files.map(|file| expand_path(file, &tokens, local)).collect::<Result<_, _>>();
        let jumps = self.jumps(&tokens)?;
        let with_why = |why| Refusal::BadConfig { file: "ssh_config".to_owned(), line: 0, why };
        Ok(HostSettings {
            user: self.user().to_owned(),
            port,
            jumps,
            identity_files: identity_files.map_err(with_why)?,
            identities_only: self
                .value("identitiesonly")
                .is_some_and(|value| value.eq_ignore_ascii_case("yes")),
            identity_agent: self
                .value("identityagent")
                .map(|path| expand_path(path, &tokens, local))
                .transpose()
                .map_err(with_why)?,
            address_family: self.address_family()?,
            known_hosts: self.known_hosts(&tokens, local).map_err(with_why)?,
            ignored: self.ignored.clone(),
            host_name: host_name.clone(),
        })
    }

    fn jumps(&self, tokens: &[(char, &str)]) -> Result<Vec<String>, Refusal> {
        let Some((line, kind)) = self.proxy else { return Ok(Vec::new()) };
        let value = line.arguments.join(" ");
        if value.eq_ignore_ascii_case("none") {
            return Ok(Vec::new());
        }
        if kind == "command" {
            return Err(self.unsupported(line, "ProxyCommand".to_owned()));
        }
        let expanded = expand(&value, tokens).map_err(|why| line.bad(why))?;
        Ok(expanded.split(',').map(|jump| jump.trim().to_owned()).collect())
    }

    fn address_family(&self) -> Result<Option<u8>, Refusal> {
        match self.first.get("addressfamily").map(|(line, value)| (line, value.to_ascii_lowercase())) {
            None => Ok(None),
            Some((_, value)) if value == "any" => Ok(None),
            Some((_, value)) if value == "inet" => Ok(Some(4)),
            Some((_, value)) if value == "inet6" => Ok(Some(6)),
            Some((line, value)) => Err(line.bad(format!("{value} is no address family"))),
        }
    }

    fn known_hosts(&self, tokens: &[(char, &str)], local: &LocalUser) -> Result<Option<Vec<String>>, String> {
        let user = self.first.get("userknownhostsfile");
        let global = self.first.get("globalknownhostsfile");
        if user.is_none() && global.is_none() {
            return Ok(None);
        }
        let defaults = [
            (user, vec!["~/.ssh/known_hosts".to_owned(), "~/.ssh/known_hosts2".to_owned()]),
            (global, vec!["/etc/ssh/ssh_known_hosts".to_owned()]),
        ];
        let mut files = Vec::new();
        for (set, default) in defaults {
            let names = set.map_or(default, |(line, _)| line.arguments.clone());
            for name in names.iter().filter(|name| !name.eq_ignore_ascii_case("none")) {
                files.push(expand_path(name, tokens, local)?);
            }
        }
        Ok(Some(files))
    }
}

fn expand_path(text: &str, tokens: &[(char, &str)], local: &LocalUser) -> Result<String, String> {
    if text.contains("${") {
        return Err(format!("variables are not supported in {text}"));
    }
    let expanded = expand(text, tokens)?;
    Ok(match expanded.strip_prefix("~/") {
        Some(rest) => local.home.join(rest).into_string(),
        None => expanded,
    })
}

/// Replaces `%x` tokens; one that is not in `tokens` is an error.
fn expand(text: &str, tokens: &[(char, &str)]) -> Result<String, String> {
    let mut expanded = String::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(c) = characters.next() {
        if c != '%' {
            expanded.push(c);
            continue;
        }
        match characters.next() {
            Some('%') => expanded.push('%'),
            Some(token) => match tokens.iter().find(|(name, _)| *name == token) {
                Some((_, value)) => expanded.push_str(value),
                None => return Err(format!("the token %{token} is not supported in {text}")),
            },
            None => return Err(format!("{text} ends in %")),
        }
    }
    Ok(expanded)
}
