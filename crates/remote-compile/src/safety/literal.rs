//! Addresses in every spelling that some resolver accepts.
//!
//! `3232236398`, `0xc0a8036e`, `0300.0250.3.156`, `192.168.878` and `[::ffff:192.168.3.110%en0]` are one address. A spelling
//! that different programs read differently (a leading zero is octal to one and decimal to another; a number too large is
//! refused by one and cut by another) yields every reading.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// What a host text is when it is taken as an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Literal {
    /// The usual spelling of one address; the zone of an IPv6 address is kept apart.
    Canonical(IpAddr, Option<String>),
    /// A spelling that some programs read as one of these addresses.
    Unusual(Vec<IpAddr>),
    /// Every label is a number, but no program reads it as an address.
    Numeric,
}

/// Reads `host` as an address; `None` where it is a name.
pub fn read_literal(host: &str) -> Option<Literal> {
    let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
    if bare.contains(':') {
        return Some(read_v6(bare));
    }
    if let Ok(address) = bare.parse::<Ipv4Addr>()
        && bare == host
    {
        return Some(Literal::Canonical(address.into(), None));
    }
    // A zone after an IPv4 address has no meaning; some readers cut it off.
    let digits = bare.split('%').next().unwrap_or(bare).trim_end_matches('.');
    if digits.is_empty() || !digits.split('.').all(is_number) {
        return None;
    }
    let readings = read_v4(digits);
    Some(if readings.is_empty() { Literal::Numeric } else { Literal::Unusual(readings) })
}

fn read_v6(text: &str) -> Literal {
    let (digits, zone) = match text.split_once('%') {
        Some((digits, zone)) => (digits, Some(zone.to_owned())),
        None => (text, None),
    };
    let digits = digits.strip_suffix('.').unwrap_or(digits);
    match digits.parse::<Ipv6Addr>() {
        Ok(address) => Literal::Canonical(address.into(), zone),
        // `::ffff:0xc0.168.3.110` and the like: read the tail by itself.
        Err(_) => match digits.rsplit_once(':').map(|(_, tail)| read_v4(tail)) {
            Some(readings) if !readings.is_empty() => Literal::Unusual(readings),
            _ => Literal::Numeric,
        },
    }
}

fn is_number(label: &str) -> bool {
    let (body, radix) = split_radix(label);
    !label.is_empty() && body.chars().all(|digit| digit.is_digit(radix.max(10)))
}

fn split_radix(label: &str) -> (&str, u32) {
    match label.strip_prefix("0x").or_else(|| label.strip_prefix("0X")) {
        Some(body) => (body, 16),
        None => (label, 10),
    }
}

/// Every value that some reader gives to a label: hexadecimal, octal and decimal.
fn label_values(label: &str) -> Vec<u128> {
    let (body, radix) = split_radix(label);
    if radix == 16 {
        let body = if body.is_empty() { "0" } else { body };
        return u128::from_str_radix(body, 16).into_iter().collect();
    }
    let mut values: Vec<u128> = label.parse().into_iter().collect();
    if label.len() > 1 && label.starts_with('0') {
        values.extend(u128::from_str_radix(label, 8));
    }
    values
}

/// The one- to four-part form of old address readers, in every reading of every part.
fn read_v4(text: &str) -> Vec<IpAddr> {
    let labels: Vec<&str> = text.split('.').collect();
    if labels.is_empty() || labels.len() > 4 || !labels.iter().all(|label| is_number(label)) {
        return Vec::new();
    }
    let mut sums: Vec<u32> = vec![0];
    for (position, label) in labels.iter().enumerate() {
        let last = position + 1 == labels.len();
        let mut next = Vec::new();
        for value in label_values(label) {
            for sum in &sums {
                next.push(sum | part(value, position, last));
            }
        }
        sums = next;
    }
    sums.sort_unstable();
    sums.dedup();
    sums.into_iter().map(|sum| IpAddr::V4(Ipv4Addr::from(sum))).collect()
}

/// The bits of one part. The last part fills all that is left; too large a value is cut, as careless readers do.
#[expect(clippy::cast_possible_truncation, reason = "cutting is what is modelled")]
fn part(value: u128, position: usize, last: bool) -> u32 {
    let value = value as u32;
    let shift = 8 * position as u32;
    if last {
        if shift == 0 { value } else { value & (u32::MAX >> shift) }
    } else {
        (value & 0xff) << (24 - shift)
    }
}

/// Every IPv4 address that an IPv6 address may carry a packet to: mapped, compatible and translated forms, NAT64 at every
/// prefix length, 6to4, 6rd, ISATAP and Teredo (whose client address is inverted). Each run of four bytes counts, which holds
/// all of those whatever the prefix; that a foreign address matches by chance is less likely than a broken disk.
pub fn embedded_v4(address: Ipv6Addr) -> Vec<Ipv4Addr> {
    let bytes = address.octets();
    let mut found: Vec<Ipv4Addr> =
        bytes.windows(4).map(|run| Ipv4Addr::new(run[0], run[1], run[2], run[3])).collect();
    // NAT64 prefixes of 40, 48 and 56 bits: byte 8 is reserved and stands in the midst of the address.
    for start in 5..8 {
        let mut run: Vec<u8> = bytes[start..8].to_vec();
        run.extend(&bytes[9..9 + (4 - run.len())]);
        found.push(Ipv4Addr::new(run[0], run[1], run[2], run[3]));
    }
    found.push(Ipv4Addr::new(!bytes[12], !bytes[13], !bytes[14], !bytes[15]));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn readings(host: &str) -> Vec<String> {
        match read_literal(host) {
            Some(Literal::Canonical(address, _)) => vec![address.to_string()],
            Some(Literal::Unusual(list)) => list.iter().map(ToString::to_string).collect(),
            Some(Literal::Numeric) => vec!["numeric".to_owned()],
            None => vec!["name".to_owned()],
        }
    }

    #[test]
    fn old_forms_are_read_as_the_c_library_does() {
        for text in
            ["0xc0a8036e", "3232236398", "030052001556", "192.168.878", "192.11010926", "0300.0250.3.0156"]
        {
            assert!(readings(text).contains(&"192.168.3.110".to_owned()), "{text}: {:?}", readings(text));
        }
    }

    #[test]
    fn a_leading_zero_has_two_readings() {
        assert_eq!(readings("192.168.3.0110"), ["192.168.3.72", "192.168.3.110"]);
    }

    #[test]
    fn names_are_no_addresses() {
        for name in ["comma", "192.168.3.110.example", "a.1", "face", "x1", "0xcomma"] {
            assert_eq!(readings(name), ["name"], "{name}");
        }
        assert_eq!(readings("1.2.3.4.5"), ["numeric"]);
        assert_eq!(read_literal("10.0.0.1"), Some(Literal::Canonical("10.0.0.1".parse().unwrap(), None)));
    }

    #[test]
    fn embedded_addresses_are_found_in_every_transition_form() {
        let forbidden: Ipv4Addr = "192.168.3.110".parse().unwrap();
        for text in [
            "::ffff:192.168.3.110",
            "::192.168.3.110",
            "::ffff:0:192.168.3.110",
            "64:ff9b::c0a8:36e",
            "64:ff9b:1::c0a8:36e",
            "2002:c0a8:36e::1",
            "2001:0:1:2:3:4:3f57:fc91",
            "fe80::5efe:c0a8:36e",
            "fe80::200:5efe:192.168.3.110",
            "2001:db8:c0a8:36e::",
            "2001:db8:c0:a803:6e::",
            "2001:db8:1:c0a8:3:6e00::",
            "2001:db8:1:c0:a8:36e::",
        ] {
            assert!(embedded_v4(text.parse().unwrap()).contains(&forbidden), "{text}");
        }
        assert!(!embedded_v4("fe80::1".parse().unwrap()).contains(&forbidden));
    }
}
