"""Addresses of services that decide about users and rights."""

from __future__ import annotations

import pytest

from gateway.security.addresses import AddressUnsafe, require_private


@pytest.mark.parametrize(
    "address",
    [
        *("http://idp.example", "ftp://localhost", "file:///etc/passwd", "https://ann:secret@idp.example", "None", ""),
        *("http://localhost.evil.example", "http://127.0.0.1.evil.example", "http://[::1", "https://idp.example/#x"),
    ],
)
def test_an_address_that_others_can_read_along_is_not_asked(address: str) -> None:
    with pytest.raises(AddressUnsafe):
        require_private(address)


@pytest.mark.parametrize(
    "address", ["https://idp.example/a", "http://localhost:1", "http://127.0.0.1", "http://[::1]:8"]
)
def test_https_and_this_machine_are_asked(address: str) -> None:
    require_private(address)
