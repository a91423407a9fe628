"""Which node to ask: owners are learnt from redirections, and forgotten when they cannot be reached."""

from __future__ import annotations

from shardq.drivers.topology import Topology

A, B, C = ("a", 1), ("b", 2), ("c", 3)


def test_an_unknown_owner_is_looked_for_at_a_seed() -> None:
    assert Topology((A, B)).owner(7) == A


def test_a_redirection_is_remembered_for_its_slot_only() -> None:
    topology = Topology((A,))
    topology.moved(7, B)
    assert (topology.owner(7), topology.owner(8)) == (B, A)
    topology.moved(7, C)
    assert topology.owner(7) == C


def test_when_an_owner_is_out_of_reach_others_are_asked_in_turn() -> None:
    topology = Topology((A,))
    topology.moved(7, B)
    topology.lost(7, B)
    assert topology.owner(7) == A
    topology.lost(7, A)
    assert topology.owner(7) == B  # it was seen before, and may be back
    topology.lost(7, B)
    assert topology.owner(7) == A


def test_a_node_that_another_call_replaced_already_is_not_forgotten_again() -> None:
    topology = Topology((A, B))
    topology.moved(7, C)
    topology.lost(7, B)  # a late answer about an older owner
    assert topology.owner(7) == C


def test_nodes_that_were_seen_are_asked_when_all_seeds_are_gone() -> None:
    topology = Topology((A,))
    topology.add(C)
    topology.add(C)
    topology.lost(7, A)
    assert topology.owner(7) == C
    topology.lost(7, C)
    assert topology.owner(7) == A
