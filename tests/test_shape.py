"""The numbers of `make shape` are counted right."""

from pathlib import Path

from tests import shape


def test_cycles_and_importers_are_found(tmp_path: Path) -> None:
    package = tmp_path / "muster"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "one.py").write_text("from muster.two import x\n")
    (package / "two.py").write_text("def f():\n    from muster import three\n")
    (package / "three.py").write_text('import_module(f"muster.{name}")\nimport muster.one\n')
    (package / "four.py").write_text("")
    known = shape.modules(package)
    assert set(known) == {"muster", "muster.one", "muster.two", "muster.three", "muster.four"}
    graph = shape.import_graph(known)
    assert graph["muster.one"] == {"muster.two"}
    assert graph["muster.two"] == {"muster.three"}
    assert graph["muster.three"] >= {"muster.one", "muster.four"}, "modules imported by a name that is put together"
    assert shape.cycles(graph) == [("muster.one", "muster.three", "muster.two")]


def test_aims_that_were_reached_are_kept() -> None:
    kept = [line for line in shape.lines_of_source() if line.what in shape.KEPT]
    assert len(kept) == len(shape.KEPT)
    assert not [(line.what, line.names) for line in kept if not line.is_reached]


def test_an_interpreter_is_a_table_of_readers_and_writers(tmp_path: Path) -> None:
    package = tmp_path / "muster"
    package.mkdir()
    pairs = ", ".join(f"(Reader.{kind}, Writer.{kind})" for kind in ("int8", "int16", "uuid"))
    (package / "table.py").write_text(f"TABLE = [{pairs}]\n")
    (package / "reads.py").write_text("READS = [Reader.int8, Reader.int16, Reader.uuid]\n")
    assert shape.interpreters(shape.modules(package)) == ("muster.table",)


def test_the_walk_of_a_join_goes_from_the_connection_to_the_log() -> None:
    walk = shape.walk_of_a_join()
    assert {"server/connection.py", "core/coordinator.py", "codec/offsets_topic.py"} <= set(walk)
    assert any(name.startswith("log/") for name in walk)
