"""`muster dashboard` and `muster report` as commands."""

import html
import json
import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from muster.cli.main import main
from muster.cli.status import Status
from tests.pages import world

TIMEOUT_S = 60.0
NOBODY = "127.0.0.1:1"


def test_a_dashboard_is_served_until_it_is_told_to_stop(tmp_path: Path) -> None:
    world.publish(tmp_path)
    command = [sys.executable, "-m", "muster", "dashboard", "--tables", str(tmp_path), "--port", "0"]
    environment = os.environ | {"MUSTER_BOOTSTRAP_SERVERS": NOBODY}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        url = line.split()[3]
        assert line.startswith("muster dashboard serves http://127.0.0.1:")
        assert f", beside it what {NOBODY} says." in line
        with urllib.request.urlopen(f"{url}overview.json", timeout=TIMEOUT_S) as reply:
            content = json.load(reply)
        assert content["page"] == "overview"
        assert content["live"]["is_up"] is False, "a cluster that is away does not matter"
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0
    assert errors == "" or (f"cannot connect to {NOBODY}" in errors and errors.count("\n") == 1)


def test_a_report_replaces_no_file_unless_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    world.publish(tmp_path / "tables")
    file = tmp_path / "groups.html"
    file.write_text("mine")
    command = ["report", "--tables", str(tmp_path / "tables"), "--html", str(file)]
    assert main(command) == Status.BAD_INPUT
    assert "is there already" in capsys.readouterr().err
    assert file.read_text() == "mine"
    assert main([*command, "--force"]) == Status.OK
    text = html.unescape(file.read_text(encoding="utf-8"))
    assert "default-src 'none'" in text
    assert "unsafe" not in text.split("</head>")[0]
    assert set(os.listdir(tmp_path)) == {"tables", "groups.html"}


def test_a_report_has_at_least_48_moments(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["report", "--tables", str(tmp_path), "--html", str(tmp_path / "a.html"), "--moments", "10"]
    assert main(command) == Status.USAGE
    assert "48" in capsys.readouterr().err
