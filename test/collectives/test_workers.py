# SPDX-License-Identifier: Apache-2.0
"""Attention and feed-forward layers on different ranks, which write to each other's windows."""

import pytest


@pytest.mark.parametrize(
    "case, size",
    [
        ("tokens_to_workers", 4),
        ("tokens_of_a_model", 3),
        ("only_workers_with_tokens", 3),
        ("results_to_attention", 3),
        ("rounds", 2),
        ("in_graphs", 2),
    ],
)
def test_workers(ranks, case, size):
    ranks.run_in_group(f"worker_cases.{case}", size)


def test_what_is_wrong_with_tokens_to_workers_is_said(ranks):
    expected = [
        "aclnnAttentionToFFN: group: this rank has no window of rank 0; HcclCommRegister and",
        "world_size is 3; expected 2, as in the group",
        "session_id is 1; expected 0 to 0",
        "layer_id is 1; expected 0 to 0",
        "expert_ids[0, 0] is 4; expected 0 to 3",
        "expert_rank_table: the rank of an expert is 1; expected 0 to 0",
        "quant_mode is 1; expected 0 or 2",
        "ffn_token_data_shape[4] is 35; expected 160 to",
        "scales needs quant_mode 2",
        "sync_flag is 2; expected 0 to 1",
        "ffn_token_info_table_shape is [1, 1, 3]; expected [1, 1, 14]",
        "the window of rank 0 has 2097152 bytes; expected",
        "active_mask has a token that takes part behind one that does not",
        "rank 0 has not taken the tokens that this worker sent to it before within 2 s",
    ]
    found = ranks.run_in_group("worker_cases.rejected", 2, timeout=2)[1]
    for text, part in zip(found, expected, strict=True):
        assert part in text, text


def test_a_window_that_is_removed_in_use_is_missed_by_the_task_that_looks_for_it(ranks):
    assert "this rank has no window of rank 1" in ranks.run_in_group("worker_cases.removed_in_use", 2)[1]


def test_windows_of_a_communicator(ranks):
    expected = [
        "HcclCommRegister: flag is 1; expected 0",
        "size is 0",
        "addr: ",
        "HcclCommExchangeMem: the handle was not returned by HcclCommRegister",
        "addr is the address of another window of this rank",
        "peerRanks has the calling rank",
        "an element of peerRanks is 2; the communicator has 2 ranks",
        "HcclCommDeregister: the handle was not returned by HcclCommRegister",
    ]
    for found in ranks.run_in_group("worker_cases.registered", 2):
        for text, part in zip(found, expected, strict=True):
            assert part in text, text
