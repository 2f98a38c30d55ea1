"""Where webhooks may be sent: the public Internet, and the networks that a deployment allows. Pure.

The tables are written out, since what `ipaddress` calls private or global has changed between patch releases of Python.
Their sources are the IANA registries of special-purpose addresses (RFC 6890) for IPv4 and IPv6.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

IPV4_DENIED: Final = tuple(
    IPv4Network(network)
    for network in (
        "0.0.0.0/8",  # this network, RFC 791: Linux connects to itself
        "10.0.0.0/8",  # private, RFC 1918
        "100.64.0.0/10",  # shared by carriers, RFC 6598
        "127.0.0.0/8",  # loopback, RFC 1122
        "169.254.0.0/16",  # link-local, RFC 3927; metadata of clouds
        "172.16.0.0/12",  # private, RFC 1918
        "192.0.0.0/24",  # protocol assignments, RFC 6890
        "192.0.2.0/24",  # documentation, RFC 5737
        "192.31.196.0/24",  # AS112, RFC 7535
        "192.52.193.0/24",  # AMT relays, RFC 7450
        "192.88.99.0/24",  # 6to4 relays, RFC 7526
        "192.168.0.0/16",  # private, RFC 1918
        "192.175.48.0/24",  # AS112, RFC 7534
        "198.18.0.0/15",  # benchmarks, RFC 2544
        "198.51.100.0/24",  # documentation, RFC 5737
        "203.0.113.0/24",  # documentation, RFC 5737
        "224.0.0.0/4",  # multicast, RFC 5771
        "240.0.0.0/4",  # reserved, RFC 1112; broadcast, RFC 919
    )
)

# Nothing outside is global unicast (RFC 4291 §2.4): no loopback, no unique local or link-local address, none of those in
# which a translator would find an IPv4 address (::/96, ::ffff:0:0:0/96 of RFC 7915, 64:ff9b::/96 of RFC 6052).
IPV6_GLOBAL: Final = IPv6Network("2000::/3")
IPV6_DENIED: Final = tuple(
    IPv6Network(network)
    for network in (
        "2001::/23",  # protocol assignments, RFC 2928; Teredo, RFC 4380, ends at the IPv4 address inside
        "2001:db8::/32",  # documentation, RFC 3849
        "2002::/16",  # 6to4, RFC 3056: ends at the IPv4 address inside
        "2620:4f:8000::/48",  # AS112, RFC 7534
        "3fff::/20",  # documentation, RFC 9637
    )
)

# What hands out credentials to whoever asks from inside: closed even where its network is allowed.
METADATA: Final = frozenset(
    ip_address(address)
    for address in (
        "169.254.169.254",  # AWS, Azure, Google, OpenStack and others
        "169.254.170.2",  # tasks of AWS ECS
        "169.254.170.23",  # pods of AWS EKS
        "168.63.129.16",  # Azure's host agent, of a public range
        "100.100.100.200",  # Alibaba
        "192.0.0.192",  # Oracle
        "fd00:ec2::254",  # AWS
        "fd00:ec2::23",  # pods of AWS EKS
        "fd20:ce::254",  # Google
    )
)


@dataclass(frozen=True, slots=True)
class Policy:
    """What a deployment allows. `ports` None: every port; `networks` are allowed besides the public Internet."""

    schemes: frozenset[str]
    ports: frozenset[int] | None
    networks: tuple[Network, ...] = ()

    def refusal_of_place(self, scheme: str, port: int) -> str:
        """Why a URL may not be used, or nothing."""
        if scheme not in self.schemes:
            return f"{scheme} is not allowed; use https"
        if self.ports is not None and port not in self.ports:
            return f"port {port} is not allowed; allowed are {', '.join(map(str, sorted(self.ports)))}"
        return ""

    def refusal_of_address(self, text: str) -> str:
        """Why nothing may be connected to at this IP address (of a resolver's answer, so maybe with %scope), or nothing."""
        address = plain(ip_address(text.partition("%")[0]))
        if {address, *embedded(address)} & METADATA:
            return f"{text} is a metadata service of a cloud"
        if is_in(self.networks, address):
            return ""
        if isinstance(address, IPv4Address):
            public = not is_in(IPV4_DENIED, address)
        else:
            public = address in IPV6_GLOBAL and not is_in(IPV6_DENIED, address)
        return "" if public else f"{text} is not on the public Internet"


def networks(texts: Sequence[str]) -> tuple[Network, ...]:
    """Raises `ValueError` for what is no network in CIDR notation."""
    return tuple(ip_network(text) for text in texts)


def is_in(table: Sequence[Network], address: Address) -> bool:
    return any(address in network for network in table if network.version == address.version)


def plain(address: Address) -> Address:
    """::ffff:0:0/96 is IPv4 in the clothes of IPv6 (RFC 4291 §2.5.5.2): the kernel connects to the address inside."""
    return (address.ipv4_mapped or address) if isinstance(address, IPv6Address) else address


def embedded(address: Address) -> set[Address]:
    """Where a translator or tunnel could take an IPv6 address to: its last 32 bits, or for 6to4 those after the prefix."""
    if isinstance(address, IPv4Address):
        return set()
    bits = int(address)
    return {IPv4Address(bits & 0xFFFF_FFFF), IPv4Address(bits >> 80 & 0xFFFF_FFFF)}
