//! The forbidden device in every spelling and by every route, on the pure check.

use std::{
    collections::BTreeMap,
    io,
    net::{IpAddr, SocketAddr, TcpListener},
};

use super::*;

/// A resolver that knows what a test tells it, and nothing of the network.
#[derive(Default)]
struct Names(BTreeMap<String, Vec<IpAddr>>);

impl Names {
    fn with(mut self, name: &str, addresses: &[&str]) -> Self {
        self.0.insert(name.to_owned(), addresses.iter().map(|text| text.parse().unwrap()).collect());
        self
    }
}

impl Resolver for Names {
    fn resolve(&self, name: &str) -> io::Result<Vec<SocketAddr>> {
        if let Some((address, _)) = name.split_once('%') {
            return Ok(vec![SocketAddr::new(address.parse().unwrap(), 0)]);
        }
        let known = self.0.get(&name.trim_end_matches('.').to_ascii_lowercase());
        let known = known.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "no such name"))?;
        Ok(known.iter().map(|address| SocketAddr::new(*address, 0)).collect())
    }
}

fn local() -> LocalUser {
    LocalUser { name: "me".to_owned(), home: "/home/me".into() }
}

fn names() -> Names {
    Names::default()
        .with("comma", &["10.0.0.5"])
        .with("good", &["192.168.3.109"])
        .with("jump", &["10.0.0.1"])
        .with("bad", &["192.168.3.110"])
        .with("bad6", &["::ffff:192.168.3.110"])
        .with("nat64", &["64:ff9b::c0a8:36e"])
        .with("two", &["192.168.3.109", "192.168.3.110"])
        .with("late", &["10.0.0.1", "10.0.0.2", "2002:c0a8:36e::"])
        .with("192.168.3.110.nip.example", &["192.168.3.110"])
        .with("any", &["0.0.0.0"])
}

fn check_with(device: &str, config: &str, policy: &Policy) -> Result<DeviceAddress, Refusal> {
    let config = SshConfig::parse(config, "/nowhere".into(), &local())?;
    check_device(device, policy, &config, &names(), &local())
}

/// Checks with everything allowed, so that nothing but the rules on addresses can refuse.
fn check(device: &str, config: &str) -> Result<DeviceAddress, Refusal> {
    check_with(device, config, &Policy { allowed: vec![device.to_owned()], ..Policy::default() })
}

/// Spellings of the address alone.
fn spellings() -> Vec<String> {
    let mut all: Vec<String> = [
        "192.168.3.110",
        "192.168.3.110.",
        "192.168.3.110..",
        "[192.168.3.110]",
        "192.168.3.110%eth0",
        "192.168.3.0x6e",
        "192.168.3.0X6E",
        "192.168.3.0156",
        "192.168.3.00156",
        "192.168.03.110",
        "192.168.003.110",
        "192.0250.3.110",
        "0300.168.3.110",
        "0300.0250.03.0156",
        "00000300.0250.0003.0156",
        "0xc0.0xa8.0x3.0x6e",
        "0xC0.0XA8.0x03.0x6E",
        "0xc0.168.0x3.110",
        "192.168.878",
        "192.168.0x36e",
        "192.168.01556",
        "192.0xa8.878",
        "0xc0.0xa8.0x36e",
        "0300.0250.01556",
        "192.11010926",
        "192.0xa8036e",
        "192.052001556",
        "0xc0.11010926",
        "0xc0.0xa8036e",
        "0300.0xa8036e",
        "3232236398",
        "0xc0a8036e",
        "0XC0A8036E",
        "0xC0a8036E",
        "0x00c0a8036e",
        "0x0000000000c0a8036e",
        "030052001556",
        "0030052001556",
        "3232236398.",
        "0xc0a8036e.",
        "[3232236398]",
        "7527203694",
        "0x1c0a8036e",
        "192.168.3.366",
        "448.168.3.110",
        "192.424.3.110",
        "192.168.259.110",
        "192.168.3.0110",
        "192.168.3.00110",
        "192.168.66414",
        "192.27788142",
        "[0xc0a8036e]",
        "::ffff:192.168.3.110",
        "[::ffff:192.168.3.110]",
        "::FFFF:192.168.3.110",
        "::ffff:c0a8:36e",
        "::ffff:c0a8:036e",
        "::ffff:C0A8:036E",
        "[::ffff:c0a8:36e]",
        "0:0:0:0:0:ffff:192.168.3.110",
        "0:0:0:0:0:ffff:c0a8:36e",
        "0000:0000:0000:0000:0000:ffff:c0a8:036e",
        "::ffff:192.168.3.110%eth0",
        "[::ffff:192.168.3.110%25eth0]",
        "[::ffff:c0a8:36e%1]",
        "::192.168.3.110",
        "::c0a8:36e",
        "[::192.168.3.110]",
        "0::c0a8:36e",
        "::0:c0a8:36e",
        "::ffff:0:192.168.3.110",
        "::ffff:0:c0a8:36e",
        "64:ff9b::192.168.3.110",
        "64:ff9b::c0a8:36e",
        "[64:ff9b::c0a8:36e]",
        "0064:FF9B::C0A8:036E",
        "64:ff9b:1::c0a8:36e",
        "64:ff9b:1:c0a8:3:6e00::",
        "2002:c0a8:36e::",
        "2002:c0a8:36e::1",
        "[2002:c0a8:036e::c0a8:36e]",
        "2002:C0A8:036E:1::1",
        "2001:0:4136:e378:8000:63bf:3f57:fc91",
        "2001::3f57:fc91",
        "2001:0:c0a8:36e:8000:63bf:1:1",
        "fe80::5efe:192.168.3.110",
        "fe80::5efe:c0a8:36e",
        "fe80::200:5efe:c0a8:36e",
        "[fe80::5efe:c0a8:36e%eth0]",
        "2001:db8::5efe:192.168.3.110",
        "2001:db8:c0a8:36e::",
        "2001:db8:1c0:a803:6e::",
        "2001:db8:122:c0a8:3:6e00::",
        "2001:db8:122:3c0:a8:36e::",
        "2001:db8:122:344:c0:a803:6e00:0",
        "2001:db8:122:344::192.168.3.110",
        "2a01:c0a8:36e::1",
        "::ffff:0xc0.168.3.110",
        "::ffff:0300.168.3.110",
        "::ffff:192.168.3.110.",
        "::ffff:192.168.878",
    ]
    .map(str::to_owned)
    .to_vec();
    all.extend(
        ["bad", "BAD", "bad.", "bad6", "nat64", "two", "late", "192.168.3.110.nip.example"]
            .map(str::to_owned),
    );
    all
}

#[test]
fn every_spelling_is_refused() {
    let spellings = spellings();
    let mut tried = 0;
    for spelling in &spellings {
        for device in [spelling.clone(), format!("comma@{spelling}"), format!("ssh://comma@{spelling}")] {
            tried += 1;
            let refusal = check(&device, "").expect_err(&device);
            assert_eq!(refusal.rule(), "forbidden-address", "{device}: {refusal}");
        }
        if spelling.starts_with('[') || !spelling.contains(':') {
            tried += 1;
            assert_eq!(
                check(&format!("comma@{spelling}:2222"), "").expect_err(spelling).rule(),
                "forbidden-address"
            );
        }
    }
    assert!(spellings.len() >= 100 && tried >= 150, "{} spellings, {tried} tried", spellings.len());
}

#[test]
fn every_route_is_refused() {
    let routes = [
        ("dev", "Host dev\n HostName 192.168.3.110"),
        ("dev", "Host dev\n hostname=192.168.3.110"),
        ("dev", "Host dev\n HostName \"192.168.3.110\""),
        ("dev", "Host *\n HostName bad"),
        ("dev", "Host d?v\n HostName 0xc0a8036e"),
        ("dev", "Host other !dev\n HostName good\nHost dev\n HostName two"),
        ("3.110", "Host 3.110\n HostName 192.168.%h"),
        ("dev", "Match all\n HostName bad"),
        ("dev", "Match host dev\n HostName bad6"),
        ("dev", "Match originalhost dev\n HostName bad"),
        ("comma@dev", "Match user comma\n HostName bad"),
        ("dev", "Match localuser me\n HostName bad"),
        ("dev", "Match !host other\n HostName bad"),
        ("dev", "Match host=dev\n HostName bad"),
        ("good", "Host good\n ProxyJump bad"),
        ("good", "Host good\n ProxyJump comma@192.168.3.110:22"),
        ("good", "Host good\n ProxyJump jump,bad"),
        ("good", "Host good\n ProxyJump bad,jump"),
        ("good", "Host good\n ProxyJump jump,3232236398"),
        ("good", "Host good\n ProxyJump ssh://comma@[::ffff:c0a8:36e]:22"),
        ("good", "Host good\n ProxyJump hop\nHost hop\n HostName 192.168.3.110"),
        ("good", "Host good\n ProxyJump hop\nHost hop\n HostName jump\n ProxyJump bad"),
        ("good", "Host good\n ProxyJump jump,hop\nHost hop\n HostName late"),
        ("dev", "Host dev\n HostName bad\n ProxyJump jump"),
        ("dev", "HostName bad\nHost dev\n HostName good"),
        ("192.168.3.110", "Host 192.168.3.110\n HostName 192.168.3.109"),
        ("3232236398", "Host 3232236398\n HostName good"),
        ("good", "Host good\n ProxyJump 192.168.3.110\nHost 192.168.3.110\n HostName jump"),
        ("good", "Host good\n ProxyJump jump,0xc0a8036e\nHost 0xc0a8036e\n HostName jump"),
        ("dev", "Host dev\n HostName 192.168.3.110\n AddressFamily inet6"),
        ("two", "Host two\n AddressFamily inet"),
        ("dev", "IgnoreUnknown x\nHost dev\n Hostname 192.168.878"),
    ];
    for (device, config) in routes {
        let refusal = check(device, config).expect_err(config);
        assert_eq!(refusal.rule(), "forbidden-address", "{device} with {config}: {refusal}");
    }
}

#[test]
fn included_files_are_followed() {
    let dir = tempfile::tempdir().unwrap();
    let root = camino::Utf8Path::from_path(dir.path()).unwrap();
    std::fs::create_dir(root.join("d")).unwrap();
    put(&root.join("d/a.conf"), "Host dev\n HostName 192.168.3.110\n");
    put(&root.join("config"), "Include d/*.conf\nHost dev\n HostName good\n");
    put(&root.join("inside"), "Host nothing\n Include d/*.conf\nHost dev\n HostName good\n");
    let user = LocalUser { name: "me".to_owned(), home: root.to_owned() };
    let policy = Policy { allowed: vec!["dev".to_owned()], ..Policy::default() };
    let check = |file: &str| {
        let text = std::fs::read_to_string(root.join(file)).unwrap();
        check_device("dev", &policy, &SshConfig::parse(&text, root, &user).unwrap(), &names(), &user)
    };
    assert_eq!(check("config").unwrap_err().rule(), "forbidden-address");
    assert!(check("inside").is_ok(), "an include in a block for others does not apply");
}

#[expect(clippy::disallowed_methods, reason = "tests make files the plain way")]
fn put(path: &camino::Utf8Path, text: &str) {
    std::fs::write(path, text).unwrap();
}

#[test]
fn what_changes_the_route_and_is_not_supported_is_named() {
    for (config, directive) in [
        ("ProxyCommand nc %h %p", "ProxyCommand"),
        ("ProxyCommand ssh 192.168.3.110 -W %h:%p\nProxyJump jump", "ProxyCommand"),
        ("CanonicalizeHostname yes", "canonicalizehostname"),
        ("HostKeyAlias other", "hostkeyalias"),
        ("BindInterface eth1", "bindinterface"),
        ("BindAddress 10.0.0.9", "bindaddress"),
        ("KnownHostsCommand /bin/true", "knownhostscommand"),
        ("ProxyUseFdpass yes", "proxyusefdpass"),
        ("RevokedHostKeys /etc/revoked", "revokedhostkeys"),
        ("Match exec \"true\"\n HostName bad", "Match exec"),
        ("Match final\n HostName bad", "Match final"),
        ("Match tagged x\n HostName bad", "Match tagged"),
        ("Warp yes", "warp"),
    ] {
        let refusal = check("good", config).expect_err(config);
        assert_eq!(refusal.rule(), "unsupported-directive", "{config}: {refusal}");
        assert!(refusal.to_string().contains(directive), "{refusal}");
    }
    for config in [
        "ProxyCommand none",
        "CanonicalizeHostname no",
        "Host other\n ProxyCommand x",
        "Match host other exec x\n Warp y",
        "IgnoreUnknown W*\nWarp yes",
    ] {
        check("good", config).unwrap_or_else(|refusal| panic!("{config}: {refusal}"));
    }
}

#[test]
fn harmless_directives_are_listed() {
    let address = check("good", "ServerAliveInterval 5\nStrictHostKeyChecking no").unwrap();
    assert_eq!(
        address.ignored_directives(),
        ["ssh_config:1 serveraliveinterval", "ssh_config:2 stricthostkeychecking"]
    );
}

#[test]
fn only_the_supported_device_needs_no_permission() {
    let none = Policy::default();
    check_with(DEFAULT_DEVICE, "", &none).unwrap();
    check_with("comma@good", "", &none).unwrap();
    for device in
        ["comma@192.168.3.109:2222", "root@192.168.3.109", "comma@10.0.0.5", "comma@comma", "comma@127.0.0.1"]
    {
        assert_eq!(check_with(device, "", &none).unwrap_err().rule(), "not-allowed", "{device}");
    }
    assert_eq!(
        check_with(DEFAULT_DEVICE, "Host 192*\n ProxyJump jump", &none).unwrap_err().rule(),
        "not-allowed"
    );
    assert_eq!(check_with(DEFAULT_DEVICE, "HostName 10.0.0.5", &none).unwrap_err().rule(), "not-allowed");
    let recorded =
        RecordedDevice { device: "comma@10.0.0.5".to_owned(), host_keys: vec!["SHA256:x".to_owned()] };
    let policy = Policy { recorded: vec![recorded], ..Policy::default() };
    assert_eq!(check_with("comma@10.0.0.5", "", &policy).unwrap().recorded_host_keys(), ["SHA256:x"]);
    assert_eq!(check_with("comma@10.0.0.5:23", "", &policy).unwrap_err().rule(), "not-allowed");
}

#[test]
fn permission_does_not_lift_the_forbidden_set() {
    let recorded = RecordedDevice { device: "comma@192.168.3.110".to_owned(), host_keys: Vec::new() };
    let policy = Policy {
        recorded: vec![recorded],
        allowed: vec!["comma@192.168.3.110".to_owned()],
        ..Policy::default()
    };
    assert_eq!(check_with("comma@192.168.3.110", "", &policy).unwrap_err().rule(), "forbidden-address");
}

#[test]
fn what_is_not_one_host_is_refused() {
    for (device, rule) in [
        ("0.0.0.0", "not-a-host"),
        ("::", "not-a-host"),
        ("224.0.0.1", "not-a-host"),
        ("255.255.255.255", "not-a-host"),
        ("any", "not-a-host"),
        ("nobody", "unresolved-name"),
        ("10.1", "ambiguous-address"),
        ("1.2.3.4.5", "ambiguous-address"),
        ("2130706433", "ambiguous-address"),
        ("192.168.3.\u{ff11}\u{ff11}0", "malformed-device"),
        ("192\u{3002}168\u{3002}3\u{3002}110", "malformed-device"),
        ("192.168.3.110/24", "malformed-device"),
        ("comma@192.168.3.110@good", "malformed-device"),
        ("good:22:22", "unresolved-name"),
    ] {
        let refusal = check(device, "").expect_err(device);
        let acceptable = [rule, "ambiguous-address"].contains(&refusal.rule());
        assert!(acceptable, "{device}: {} {refusal}", refusal.rule());
    }
    let circle = "Host a\n HostName jump\n ProxyJump b\nHost b\n HostName jump\n ProxyJump a";
    assert_eq!(check("a", circle).unwrap_err().rule(), "too-many-hops");
}

#[test]
fn the_way_through_jumps_is_dialled_by_address() {
    let config = "Host dev\n HostName comma\n Port 2200\n User builder\n ProxyJump one@jump:23,good\n IdentityFile ~/.ssh/%r_%n";
    let address = check("dev", config).unwrap();
    let dialled: Vec<String> = address.addresses().iter().map(|list| list[0].to_string()).collect();
    assert_eq!(dialled, ["10.0.0.1:23", "192.168.3.109:22", "10.0.0.5:2200"]);
    assert_eq!(address.hops()[2].settings.identity_files, ["/home/me/.ssh/builder_dev"]);
    assert_eq!(address.hops()[0].settings.user, "one");
}

/// For a rule that names loopback addresses, a listener shows that nothing arrives.
#[test]
fn no_packet_reaches_a_forbidden_loopback_address() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut policy = Policy::default();
    policy.forbidden.forbid_address("127.0.0.1".parse().unwrap());
    for host in [
        "127.0.0.1",
        "0x7f000001",
        "2130706433",
        "127.1",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "localhost",
        "0177.0.0.1",
    ] {
        let device = format!("comma@{host}:{port}");
        policy.allowed = vec![device.clone()];
        let answer = check_device(&device, &policy, &SshConfig::empty(), &SystemResolver, &local());
        assert_eq!(answer.expect_err(host).rule(), "forbidden-address", "{host}");
    }
    assert_eq!(listener.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock);
}

#[test]
fn host_keys_bind_the_device() {
    let (first, second) = (HostKey::from_base64(ED).unwrap(), HostKey::from_base64(ED2).unwrap());
    let known = KnownHosts::parse(&format!("[10.0.0.5]:2222 ssh-ed25519 {ED2}\n"), "k".into()).unwrap();
    let device = "comma@10.0.0.5:2222";
    let mut policy = Policy { allowed: vec![device.to_owned()], ..Policy::default() };
    let address = check_with(device, "", &policy).unwrap();
    assert!(address.judge_host_key(0, &known, &second).is_ok());
    assert_eq!(address.judge_host_key(0, &known, &first).unwrap_err().rule(), "host-key-changed");
    assert_eq!(
        address.judge_host_key(0, &KnownHosts::default(), &first).unwrap_err().rule(),
        "host-key-unknown"
    );

    policy.recorded =
        vec![RecordedDevice { device: device.to_owned(), host_keys: vec![first.fingerprint()] }];
    let bound = check_with(device, "", &policy).unwrap();
    assert!(bound.judge_host_key(0, &KnownHosts::default(), &first).is_ok());
    assert_eq!(bound.judge_host_key(0, &known, &second).unwrap_err().rule(), "host-key-changed");

    policy.forbidden.forbid_host_key(second.fingerprint());
    let strict = check_with(device, "", &policy).unwrap();
    assert_eq!(strict.judge_host_key(0, &known, &second).unwrap_err().rule(), "forbidden-host-key");
    let own: IpAddr = "192.168.3.110".parse().unwrap();
    assert_eq!(strict.confirm_own_addresses(&[own]).unwrap_err().rule(), "device-has-forbidden-address");
}

const ED: &str = "AAAAC3NzaC1lZDI1NTE5AAAAIJdD7y3aLq454yWBdwLWbieU1ebz9/cu7/QEXn9OIeZJ";
const ED2: &str = "AAAAC3NzaC1lZDI1NTE5AAAAILIG2T/B0l0gaqj3puu510tu9N1OkQ4znY3LYuEm5zCF";

#[test]
fn a_recorded_device_is_bound_under_every_name_at_every_port_and_as_a_jump_host() {
    let (own, other) = (HostKey::from_base64(ED).unwrap(), HostKey::from_base64(ED2).unwrap());
    let known = |names: &str| KnownHosts::parse(&format!("{names} ssh-ed25519 {ED2}\n"), "k".into()).unwrap();
    let anywhere = known("192.168.3.109,[192.168.3.109]:2222,alias,good,comma,192.168.3.109,10.0.0.5");
    let policy = Policy {
        recorded: vec![RecordedDevice {
            device: DEFAULT_DEVICE.to_owned(),
            host_keys: vec![own.fingerprint()],
        }],
        allowed: vec![
            "root@alias".to_owned(),
            "comma@192.168.3.109:2222".to_owned(),
            "comma@10.0.0.5".to_owned(),
        ],
        ..Policy::default()
    };
    let alias = "Host alias\n HostName 192.168.3.109\n User comma";
    for (device, config, hop) in [
        (DEFAULT_DEVICE, "", 0),
        ("comma@good", "", 0),
        ("alias", alias, 0),
        ("root@alias", alias, 0),
        ("comma@192.168.3.109:2222", "", 0),
        ("comma@10.0.0.5", "Host 10*\n ProxyJump comma@192.168.3.109", 0),
        ("comma@10.0.0.5", "Host 10*\n ProxyJump alias\nHost alias\n HostName 192.168.3.109\n Port 2222", 0),
    ] {
        let address = check_with(device, config, &policy).unwrap_or_else(|error| panic!("{device}: {error}"));
        assert!(address.judge_host_key(hop, &KnownHosts::default(), &own).is_ok(), "{device}");
        let refused = address.judge_host_key(hop, &anywhere, &other).unwrap_err();
        assert_eq!(refused.rule(), "host-key-changed", "{device}");
        let certified = address.judge_certificate(hop, &anywhere, &other, &other).unwrap_err();
        assert_eq!(certified.rule(), "host-key-changed", "{device}");
    }
    // What lies behind a bound jump host is what the known hosts say it is.
    let behind = check_with("comma@10.0.0.5", "Host 10*\n ProxyJump comma@192.168.3.109", &policy).unwrap();
    assert!(behind.judge_host_key(1, &anywhere, &other).is_ok());
}

#[test]
fn ports_of_this_machine_lead_to_different_devices() {
    let (first, second) = (HostKey::from_base64(ED).unwrap(), HostKey::from_base64(ED2).unwrap());
    let record = |port: u16, key: &HostKey| RecordedDevice {
        device: format!("comma@127.0.0.1:{port}"),
        host_keys: vec![key.fingerprint()],
    };
    let policy = Policy {
        recorded: vec![record(2201, &first), record(2202, &second)],
        allowed: vec!["comma@127.0.0.1:2203".to_owned()],
        ..Policy::default()
    };
    let known = KnownHosts::parse(&format!("[127.0.0.1]:2203 ssh-ed25519 {ED}\n"), "k".into()).unwrap();
    for (port, right, wrong) in [(2201, &first, &second), (2202, &second, &first), (2203, &first, &second)] {
        let address = check_with(&format!("comma@127.0.0.1:{port}"), "", &policy).unwrap();
        assert!(address.judge_host_key(0, &known, right).is_ok(), "{port}");
        assert_eq!(
            address.judge_host_key(0, &known, wrong).unwrap_err().rule(),
            "host-key-changed",
            "{port}"
        );
    }
}

#[test]
fn a_certificate_counts_by_its_authority_and_a_changed_key_stays_changed() {
    let (key, other) = (HostKey::from_base64(ED).unwrap(), HostKey::from_base64(ED2).unwrap());
    let policy = Policy { allowed: vec!["comma@10.0.0.5".to_owned()], ..Policy::default() };
    let address = check_with("comma@10.0.0.5", "", &policy).unwrap();
    let judge = |known: &str| {
        let known = KnownHosts::parse(known, "k".into()).unwrap();
        address.judge_certificate(0, &known, &key, &other).map_err(|refusal| refusal.rule())
    };
    assert_eq!(judge(&format!("@cert-authority 10.0.0.* ssh-ed25519 {ED2}\n")), Ok(()));
    // Nobody's authority: the key itself may be known, be another than the known one, or be unknown.
    assert_eq!(judge(&format!("10.0.0.5 ssh-ed25519 {ED}\n")), Ok(()));
    assert_eq!(judge(&format!("10.0.0.5 ssh-ed25519 {ED2}\n")), Err("host-key-changed"));
    assert_eq!(judge(""), Err("host-key-unknown"));
    assert_eq!(judge(&format!("@cert-authority 10.9.9.* ssh-ed25519 {ED2}\n")), Err("host-key-unknown"));
    // A revoked authority or key is never made good by another line.
    let authority = format!("@cert-authority * ssh-ed25519 {ED2}\n");
    assert_eq!(judge(&format!("{authority}@revoked * ssh-ed25519 {ED2}\n")), Err("host-key-revoked"));
    assert_eq!(judge(&format!("{authority}@revoked * ssh-ed25519 {ED}\n")), Err("host-key-revoked"));
}
