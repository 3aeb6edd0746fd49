"""Rows of several processes as one, with gradients: against one process that has them all."""

import pytest
import torch
from distributed_steps import all_rows, gathered_gradients
from small_runs import in_processes

from bures.training import gather_rows


def in_one(counts):
    weight = torch.full((3,), 0.5, dtype=torch.float64, requires_grad=True)
    rows = weight * all_rows(counts)
    loss = (rows @ rows.T).exp().mean()
    loss.backward()
    return rows.detach(), loss.detach(), weight.grad


@pytest.mark.parametrize(("counts", "known"), [((4, 4), True), ((5, 2), False), ((5, 2), True), ((3, 0), False)])
def test_two_processes_are_one(counts, known, tmp_path):
    rows, loss, gradient = in_one(counts)
    for rank in in_processes(gathered_gradients, 2, tmp_path, counts, known):
        assert torch.equal(rank["gathered"], rows)
        torch.testing.assert_close(rank["loss"], loss, rtol=1e-12, atol=0)
        torch.testing.assert_close(rank["gradient"], gradient, rtol=1e-12, atol=1e-15)
        assert rank["numbers"].tolist() == [0] * counts[0] + [1] * counts[1]


def test_three_processes_are_one(tmp_path):
    rows, _, gradient = in_one((2, 1, 3))
    for rank in in_processes(gathered_gradients, 3, tmp_path, (2, 1, 3), False):
        assert torch.equal(rank["gathered"], rows)
        torch.testing.assert_close(rank["gradient"], gradient, rtol=1e-12, atol=1e-15)


def test_one_process_gets_its_own_rows():
    rows = torch.ones(2, 3, requires_grad=True)
    assert gather_rows(rows) is rows
    assert gather_rows(rows, [2]) is rows
