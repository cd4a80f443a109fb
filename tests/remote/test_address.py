"""An address is read as ssh would, and holds no password."""

from __future__ import annotations

import pytest

from agentkernel.cli.app import run
from agentkernel.domain.errors import SettingError
from agentkernel.remote.address import Address, parse_address
from agentkernel.remote.ssh import python_command, url_of

GOOD = {
    "ssh://ada@box": Address("box", "ada"),
    "ssh://box.example.org/": Address("box.example.org"),
    "ssh://ada@box:2222?python=/opt/env/bin/python": Address(
        "box", "ada", 2222, "/opt/env/bin/python"
    ),
    "ssh://ada@[::1]:22?config=~/lab": Address("::1", "ada", 22, config="~/lab"),
}
BAD = {
    "box": "it has no ssh://",
    "http://box": "its scheme is 'http'",
    "ssh://": "it names no host",
    "ssh://-oProxyCommand=x": "it names no host",
    "ssh://ada;rm@box": "its user is no name",
    "ssh://box:0": "its port is 0",
    "ssh://box:99999": "its port no number up to 65535",
    "ssh://box:http": "its port no number up to 65535",
    "ssh://box/home": "it has a path",
    "ssh://box?python": "its options are not NAME=VALUE",
    "ssh://box?python=": "its options are python",
    "ssh://box?key=a": "its options are key",
    "ssh://box?python=a&python=b": "its options are python, python",
    "ssh://box?python=a%0ab": "a control character",
}


@pytest.mark.parametrize("url", GOOD)
def test_an_address_is_read_and_written(url: str) -> None:
    found = parse_address(url)
    assert found == GOOD[url]
    assert parse_address(url_of(found)) == found


@pytest.mark.parametrize("url", BAD)
def test_what_is_no_address_is_one_line(url: str) -> None:
    with pytest.raises(SettingError) as caught:
        parse_address(url)
    text = str(caught.value)
    assert BAD[url] in text
    assert "Expected ssh://user@host" in text
    assert "\n" not in text


@pytest.mark.parametrize("url", ["ssh://ada:hunter2@box", "ssh://ada:hunter2@box:99999"])
def test_a_password_is_refused_and_not_shown(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", "--remote", url]) == 2
    out = capsys.readouterr()
    assert "hunter2" not in out.err + out.out


def test_a_python_below_the_home_folder_is_the_shells_to_find() -> None:
    words = python_command(Address("box", python="~/my env/python"), "-m", "x")
    assert words == """exec sh -c '"$HOME"/'"'"'my env/python'"'"' -m x; exit $?'"""
