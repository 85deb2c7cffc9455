"""Kafka's file of settings: what Java makes of a line, we make of it."""

import random
import subprocess
from pathlib import Path

import pytest

from muster.config.properties import parse_properties
from muster.errors import ConfigError
from muster.java import find_java

SAMPLE = """\
# A comment, and another one:
   ! like this
node.id=1
num.partitions : 4
log.dirs /var/lib/kafka
listeners=PLAINTEXT://:9092,\\
          CONTROLLER://:9093
empty=
alone
   indented.name = value with blanks \t
escaped\\ name\\=yes=\\u00e9\\t\\q\\\\
"""


def test_a_sample() -> None:
    assert parse_properties(SAMPLE) == [
        ("node.id", "1"),
        ("num.partitions", "4"),
        ("log.dirs", "/var/lib/kafka"),
        ("listeners", "PLAINTEXT://:9092,CONTROLLER://:9093"),
        ("empty", ""),
        ("alone", ""),
        ("indented.name", "value with blanks \t"),
        ("escaped name=yes", "é\tq\\"),
    ]


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("", []),
        ("\n\r\n # nothing\n", []),
        ("a=1\rb=2\r\nc=3", [("a", "1"), ("b", "2"), ("c", "3")]),
        ("a==b", [("a", "=b")]),
        ("a = : b", [("a", ": b")]),
        ("=value", [("", "value")]),
        ("a\\\n  b = c", [("ab", "c")]),
        ("a = b\\\\\nc = d", [("a", "b\\"), ("c", "d")]),
        ("a = b\\\\\\\n  c", [("a", "b\\c")]),
        ("a = b\\", [("a", "b")]),
        ("a = b\\\n# not a comment", [("a", "b# not a comment")]),
        ("\\\n# a comment after all", []),
        ("\\", []),
        ("\\\n", []),
        ("a=1\na=2", [("a", "1"), ("a", "2")]),
        ("smile=\\ud83d\\ude00", [("smile", "😀")]),
        ("a\fb", [("a", "b")]),
    ],
)
def test_lines(text: str, pairs: list[tuple[str, str]]) -> None:
    assert parse_properties(text) == pairs


@pytest.mark.parametrize("line", ["a=\\u12", "a=\\uXYZW", "\\u=1", "a=\\\\\\u00g0"])
def test_half_an_escape_is_a_mistake_with_a_line_number(line: str) -> None:
    with pytest.raises(ConfigError, match="line 2 has a"):
        parse_properties(f"fine=1\n{line}\n")


def test_an_escaped_backslash_before_a_u_is_no_escape() -> None:
    assert parse_properties("path=C:\\\\users") == [("path", "C:\\users")]


JAVA = """
import java.io.*;
import java.util.*;

public class Load {
    public static void main(String[] none) throws Exception {
        DataInputStream in = new DataInputStream(System.in);
        DataOutputStream out = new DataOutputStream(new BufferedOutputStream(System.out));
        for (int left = in.readInt(); left > 0; left--) {
            Properties loaded = new Properties();
            loaded.load(new StringReader(new String(in.readNBytes(in.readInt()), "UTF-8")));
            out.writeInt(loaded.size());
            for (String name : new TreeSet<>(loaded.stringPropertyNames()))
                for (String text : List.of(name, loaded.getProperty(name))) {
                    byte[] bytes = text.getBytes("UTF-8");
                    out.writeInt(bytes.length);
                    out.write(bytes);
                }
        }
        out.flush();
    }
}
"""


@pytest.fixture(scope="module")
def load_class(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    home = find_java()
    if home is None or not (compiler := home.java.with_name("javac")).exists():
        pytest.skip("needs a Java compiler")
    folder = tmp_path_factory.mktemp("java")
    (folder / "Load.java").write_text(JAVA)
    subprocess.run([str(compiler), "-d", str(folder), str(folder / "Load.java")], check=True)
    return home.java, folder


def loaded_by_java(java: Path, folder: Path, texts: list[str]) -> list[dict[str, str]]:
    encoded = [text.encode() for text in texts]
    sent = len(texts).to_bytes(4, "big") + b"".join(len(one).to_bytes(4, "big") + one for one in encoded)
    said = subprocess.run([str(java), "-cp", str(folder), "Load"], input=sent, capture_output=True, check=True).stdout
    position = 0

    def number() -> int:
        nonlocal position
        position += 4
        return int.from_bytes(said[position - 4 : position], "big")

    def text() -> str:
        nonlocal position
        size = number()
        position += size
        return said[position - size : position].decode()

    return [{text(): text() for _ in range(number())} for _ in texts]


@pytest.mark.kafka
@pytest.mark.parametrize("seed", range(5))
def test_java_reads_the_same(load_class: tuple[Path, Path], seed: int) -> None:
    """As far as both can read it: a bad escape ends both.

    Also left out is the empty name without a value that Java finds in a file which ends with a lone backslash.
    """
    chance = random.Random(seed)
    readable, ours = [], []
    for text in [
        SAMPLE,
        *("".join(chance.choices("ab#!=: \t\f\\\r\nuté", k=chance.randint(0, 20))) for _ in range(2_000)),
    ]:
        try:
            ours.append(dict(parse_properties(text)))
        except ConfigError:
            continue
        readable.append(text)
    assert len(readable) > 1_000
    for text, mine, javas in zip(readable, ours, loaded_by_java(*load_class, readable), strict=True):
        if javas.get("") == "":
            del javas[""]
            mine.pop("", None)
        assert mine == javas, repr(text)
