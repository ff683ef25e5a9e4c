"""Mappings whose readers learn what has changed."""

from __future__ import annotations

import contextlib

from workers.loadbalancer.tracked import Changes, MergedSets, Tracked


def test_a_reader_learns_each_change_once() -> None:
    found = Tracked({"a": object(), "b": (kept := object())})
    early = found.changes()
    with early.taken() as changed:
        assert changed == {"a", "b"}
    found.put("a", None)
    found.put("b", kept)
    found.put("c", object())
    late = found.changes()
    with early.taken() as changed:
        assert changed == {"a", "c"}
    assert not early
    with late.taken() as changed:
        assert changed == {"b", "c"}


def test_what_a_reader_failed_to_do_stays_changed() -> None:
    found = Tracked({"a": object()})
    changes = found.changes()
    with contextlib.suppress(RuntimeError), changes.taken():
        found.put("b", object())
        raise RuntimeError
    with changes.taken() as changed:
        assert changed == {"a", "b"}


def test_a_change_while_a_reader_acts_is_not_lost() -> None:
    found = Tracked({"a": object()})
    changes = found.changes()
    with changes.taken():
        found.put("a", None)
    with changes.taken() as changed:
        assert changed == {"a"}


def test_what_was_not_taken_outlives_a_change_of_the_mapping() -> None:
    former, later = Tracked({"a": object(), "b": object()}), Tracked({"c": object()})
    changes: Changes[str] = Changes()
    changes.follow(former)
    with changes.taken():
        pass
    former.put("a", None)  # its reader has still to act on this
    changes.follow(later)
    former.put("d", object())
    with changes.taken() as changed:
        assert changed == {"a", "b", "c"}
    later.put("c", None)
    with changes.taken() as changed:
        assert changed == {"c"}


def test_a_member_stays_while_one_set_has_it() -> None:
    members: MergedSets[str, int] = MergedSets()
    members.put("a", {1, 2})
    members.put("b", {2, 3})
    assert members.put("a", ()) == {1, 2}
    assert set(members) == {2, 3}
    assert members.put("b", {3}) == {2, 3}
    assert 2 not in members
