//! Classes of IP addresses: which are public, and which lead into this machine or its networks. Pure: takes the address
//! that is about to be dialled, and looks up no name.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The class of an IP address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressClass {
    /// Reachable in the public internet.
    Public,
    /// This machine.
    Loopback,
    /// A private network, or the shared network of a carrier.
    Private,
    /// The same link; cloud providers serve credentials there.
    LinkLocal,
    /// An IPv6 address that stands for an IPv4 address: mapped, compatible, NAT64, 6to4 or Teredo.
    Embedded,
    /// Unspecified, multicast, broadcast, documentation, benchmarks, and other addresses that are no host's.
    Reserved,
}

/// Ranges of IPv4 with the length of their prefix.
const V4_RANGES: &[(Ipv4Addr, u32, AddressClass)] = &[
    (Ipv4Addr::new(0, 0, 0, 0), 8, AddressClass::Reserved),
    (Ipv4Addr::new(10, 0, 0, 0), 8, AddressClass::Private),
    (Ipv4Addr::new(100, 64, 0, 0), 10, AddressClass::Private),
    (Ipv4Addr::new(127, 0, 0, 0), 8, AddressClass::Loopback),
    (Ipv4Addr::new(169, 254, 0, 0), 16, AddressClass::LinkLocal),
    (Ipv4Addr::new(172, 16, 0, 0), 12, AddressClass::Private),
    (Ipv4Addr::new(192, 0, 0, 0), 24, AddressClass::Reserved),
    (Ipv4Addr::new(192, 0, 2, 0), 24, AddressClass::Reserved),
    (Ipv4Addr::new(192, 88, 99, 0), 24, AddressClass::Reserved),
    (Ipv4Addr::new(192, 168, 0, 0), 16, AddressClass::Private),
    (Ipv4Addr::new(198, 18, 0, 0), 15, AddressClass::Reserved),
    (Ipv4Addr::new(198, 51, 100, 0), 24, AddressClass::Reserved),
    (Ipv4Addr::new(203, 0, 113, 0), 24, AddressClass::Reserved),
    (Ipv4Addr::new(224, 0, 0, 0), 4, AddressClass::Reserved),
    (Ipv4Addr::new(240, 0, 0, 0), 4, AddressClass::Reserved),
];

/// Ranges of IPv6, the narrower before the wider. What is in none is reserved: only 2000::/3 is assigned to hosts.
const V6_RANGES: &[(Ipv6Addr, u32, AddressClass)] = &[
    (Ipv6Addr::UNSPECIFIED, 128, AddressClass::Reserved),
    (Ipv6Addr::LOCALHOST, 128, AddressClass::Loopback),
    (Ipv6Addr::UNSPECIFIED, 96, AddressClass::Embedded),
    (Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, 0, 0), 96, AddressClass::Embedded),
    (Ipv6Addr::new(0, 0, 0, 0, 0xffff, 0, 0, 0), 96, AddressClass::Embedded),
    (Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0), 96, AddressClass::Embedded),
    (Ipv6Addr::new(0x64, 0xff9b, 1, 0, 0, 0, 0, 0), 48, AddressClass::Embedded),
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 32, AddressClass::Embedded),
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23, AddressClass::Reserved),
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32, AddressClass::Reserved),
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16, AddressClass::Embedded),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20, AddressClass::Reserved),
    (Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3, AddressClass::Public),
    (Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 0), 7, AddressClass::Private),
    (Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10, AddressClass::LinkLocal),
];

impl AddressClass {
    /// The class of an address.
    #[must_use]
    pub fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(address) => {
                let is_in =
                    |base: Ipv4Addr, bits: u32| (address.to_bits() ^ base.to_bits()) >> (32 - bits) == 0;
                let range = V4_RANGES.iter().find(|(base, bits, _)| is_in(*base, *bits));
                range.map_or(AddressClass::Public, |(_, _, class)| *class)
            }
            IpAddr::V6(address) => {
                let is_in =
                    |base: Ipv6Addr, bits: u32| (address.to_bits() ^ base.to_bits()) >> (128 - bits) == 0;
                let range = V6_RANGES.iter().find(|(base, bits, _)| is_in(*base, *bits));
                range.map_or(AddressClass::Reserved, |(_, _, class)| *class)
            }
        }
    }

    /// Whether a grant can allow addresses of the class. The others are no host's, or have a plain spelling.
    #[must_use]
    pub fn is_grantable(self) -> bool {
        match self {
            AddressClass::Public
            | AddressClass::Loopback
            | AddressClass::Private
            | AddressClass::LinkLocal => true,
            AddressClass::Embedded | AddressClass::Reserved => false,
        }
    }

    /// The class in words, for messages: "an address of …".
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            AddressClass::Public => "the public internet",
            AddressClass::Loopback => "this machine (loopback)",
            AddressClass::Private => "a private network",
            AddressClass::LinkLocal => "the local link",
            AddressClass::Embedded => "IPv4 inside IPv6",
            AddressClass::Reserved => "a reserved range",
        }
    }
}
