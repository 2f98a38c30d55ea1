"""Which addresses may be connected to."""

import pytest

from webhooks.addresses import IPV4_DENIED, IPV6_DENIED, METADATA, Policy, networks

PUBLIC = Policy(frozenset({"https"}), frozenset({443, 8443}))


def open_to(*texts: str) -> Policy:
    return Policy(PUBLIC.schemes, PUBLIC.ports, networks(texts))


@pytest.mark.parametrize("network", [*IPV4_DENIED, *IPV6_DENIED], ids=str)
def test_both_ends_of_each_special_network_are_refused(network: object) -> None:
    for address in (network[0], network[-1]):  # type: ignore[index]
        assert "not on the public Internet" in PUBLIC.refusal_of_address(str(address)) or address in METADATA


@pytest.mark.parametrize(
    "address",
    [
        "::", "::1", "::127.0.0.1", "::ffff:127.0.0.1", "::ffff:10.0.0.5", "::ffff:0:a9fe:a9fe", "64:ff9b::a9fe:a9fe",
        "64:ff9b:1::a9fe:a9fe", "100::1", "1fff::1", "4000::1", "5f00::1", "fc00::1", "fdff::1", "fe80::1%eth0", "fec0::1",
        "ff02::1", "2001:0:a9fe:a9fe::1", "2002:a00:1::1",
    ],
)  # fmt: skip
def test_ipv6_that_is_not_global_or_hides_ipv4_is_refused(address: str) -> None:
    assert PUBLIC.refusal_of_address(address)


@pytest.mark.parametrize(
    "address",
    ["8.8.8.8", "93.184.216.34", "172.15.255.255", "172.32.0.0", "100.63.255.255", "223.255.255.255", "::ffff:8.8.8.8",
     "2606:4700::1111", "2001:200::1", "2a00:1450::1", "3ffe::1"],
)  # fmt: skip
def test_the_public_internet_is_open(address: str) -> None:
    assert PUBLIC.refusal_of_address(address) == ""


@pytest.mark.parametrize("address", sorted(METADATA, key=str), ids=str)
def test_no_allowed_network_opens_metadata(address: object) -> None:
    policy = open_to("0.0.0.0/0", "::/0")
    assert "metadata" in policy.refusal_of_address(str(address))


@pytest.mark.parametrize(
    "address",
    ["::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "::ffff:0:a9fe:a9fe", "::a9fe:a9fe", "2002:a9fe:a9fe::1",
     "64:ff9b::a83f:8110"],
)  # fmt: skip
def test_nor_through_a_translator(address: str) -> None:
    assert "metadata" in open_to("0.0.0.0/0", "::/0").refusal_of_address(address)


def test_an_allowed_network_is_open_and_its_neighbour_is_not() -> None:
    policy = open_to("10.1.0.0/16", "fd12::/64")
    assert policy.refusal_of_address("10.1.2.3") == policy.refusal_of_address("fd12::1") == ""
    assert policy.refusal_of_address("::ffff:10.1.2.3") == ""
    assert policy.refusal_of_address("10.2.0.0")
    assert policy.refusal_of_address("fd12:0:0:1::1")


def test_places() -> None:
    assert PUBLIC.refusal_of_place("https", 443) == PUBLIC.refusal_of_place("https", 8443) == ""
    assert PUBLIC.refusal_of_place("https", 25) == "port 25 is not allowed; allowed are 443, 8443"
    assert PUBLIC.refusal_of_place("http", 443) == "http is not allowed; use https"
    assert Policy(frozenset({"http"}), None).refusal_of_place("http", 1) == ""
