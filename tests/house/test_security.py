"""docs/security.md is held by tests: each row of its table of actors, and each of its promises, has some."""

from __future__ import annotations

import re

import pytest

from tests.house.doc_blocks import ROOT
from tests.house.test_paths import section

PAGE = (ROOT / "docs" / "security.md").read_text()
ROW = re.compile(r"^\| (?!who \|)([^|-][^|]+) \|", re.MULTILINE)
PROMISE = re.compile(r"^- \*\*(.+?)\*\*", re.MULTILINE | re.DOTALL)

ACTORS = {
    "a stranger on the network": (
        "gateway/test_access.py::test_without_a_token_nothing_but_the_health_check_is_open",
        "gateway/test_access.py::test_tls_and_client_certificates",
        "gateway/test_strangers.py::test_a_thousand_connections_keep_nobody_out",
        "gateway/test_strangers.py::test_a_flood_is_not_even_read_and_keeps_nobody_out",
        "gateway/test_strangers.py::test_a_stranger_that_guesses_tokens_is_cut_off",
    ),
    "a stranger who reaches a port of numbers": (
        "exporter/test_listener.py::test_what_is_not_served_is_one_plain_line",
        "exporter/test_listener.py::test_who_sends_slowly_is_cut_off",
        "exporter/test_listener.py::test_silent_connections_keep_nobody_out",
        "exporter/test_listener.py::test_silent_connections_keep_nobody_out_where_there_is_tls",
        "exporter/test_poller.py::test_a_hundred_askers_ten_times_a_second_make_one_call_a_second",
        "exporter/test_poller.py::test_names_that_nobody_has_fill_neither_memory_nor_redis",
        "exporter/test_keda.py::test_hostile_metadata_do_nothing",
        "exporter/test_keda.py::test_what_is_too_large_or_no_message_is_refused",
        "exporter/test_keda.py::test_calls_that_stay_open_are_bounded_and_make_room_when_they_end",
        "exporter/test_scaler.py::test_tls_and_certificates_of_clients_and_one_that_is_renewed",
        "exporter/test_text.py::test_no_name_breaks_a_line",
        "exporter/test_tenants.py::test_nobody_is_shown_unless_that_is_wanted",
    ),
    "a stranger who reaches the page": (
        "dashboard/test_login.py::test_who_has_not_logged_in_gets_the_form_and_nothing_else",
        "dashboard/test_login.py::test_who_guesses_is_slowed_and_nobody_else",
        "dashboard/test_login.py::test_a_session_that_somebody_fixed_is_worth_nothing",
        "dashboard/test_attacks.py::test_a_thousand_streams_of_one_person_take_ten_places",
        "dashboard/test_attacks.py::test_a_thousand_people_take_two_hundred_places",
        "dashboard/test_guard.py::test_auth_that_fails_refuses",
        "dashboard/test_guard.py::test_what_fails_says_nothing_but_to_the_log",
    ),
    "a page of another site, in the browser of who looks": (
        "dashboard/test_guard.py::test_only_known_names_of_the_host_are_answered",
        "dashboard/test_guard.py::test_a_post_that_is_not_of_the_page_is_refused",
        "dashboard/test_guard.py::test_another_site_may_link_to_the_page_but_not_ask_it",
        "dashboard/test_guard.py::test_each_answer_has_the_headers",
        "dashboard/test_attacks.py::test_another_origin_and_another_name_of_the_host_are_refused",
    ),
    "who looks at the page": (
        "dashboard/test_guard.py::test_a_viewer_that_acts_is_refused_and_told_in_the_log",
        "dashboard/test_login.py::test_who_is_taken_out_of_the_file_is_out_at_once",
    ),
    "an edge tenant with a token, hostile or stolen": (
        "gateway/test_hostile.py::test_each_refusal_has_its_reason_and_the_others_are_stored",
        "gateway/test_counts.py::test_what_a_request_has_many_of_stops_nobody",
        "gateway/test_counts.py::test_a_flood_of_such_requests_leaves_others_their_turn_and_no_memory_taken",
        "gateway/test_resets.py::test_a_connection_that_only_makes_work_is_ended_and_others_go_on",
        "gateway/test_neighbours.py::test_a_flood_of_one_token_leaves_another_ones_round_trips_short",
        "gateway/test_releases.py::test_only_the_token_that_stored_an_id_can_release_it",
        "gateway/test_access.py::test_a_token_that_has_expired_is_refused_and_ends_what_is_open",
        "gateway/test_access.py::test_a_token_that_is_bound_to_a_certificate_holds_with_no_other",
        "gateway/test_fuzz.py::test_fuzzed_requests_harm_nobody",
    ),
    "a client that writes trace headers": (
        "gateway/test_traces.py::test_the_context_of_a_client_is_a_link",
        "gateway/test_traces.py::test_a_token_may_say_that_it_is_the_parent",
        "gateway/test_traces.py::test_without_a_trace_of_the_gateway_a_worker_is_linked_to_the_client",
    ),
    "an honest producer with a bug": (
        "hostile/test_entries.py::test_what_an_entry_cannot_take_is_an_error_of_shardqs_own",
    ),
    "a client that chooses names that a program asks for": (
        "conformance/client/test_growth.py::test_names_that_others_choose_leave_little_behind",
    ),
    "another user of the machine": (
        "edge/test_secrets.py::test_all_files_of_a_spool_are_for_their_owner_only",
        "edge/test_secrets.py::test_files_that_others_have_put_there_are_not_used",
        "edge/test_secrets.py::test_the_lock_follows_no_link_and_changes_no_other_file",
        "edge/test_secrets.py::test_a_folder_that_another_process_has_locked_is_not_waited_for_for_ever",
        "embedded/test_embedded.py::test_it_listens_on_a_private_unix_socket_only",
        "gateway/test_sockets.py::test_a_folder_whose_socket_lets_others_wait_keeps_nobody_from_starting",
    ),
    "a handler in a worker": (
        "conformance/settle/test_settle.py::test_a_stale_lease_changes_nothing_while_another_holds_the_message",
        "conformance/settle/test_settle.py::test_a_lease_that_ended_is_worth_nothing_though_nobody_took_the_message",
    ),
    "a client that writes messages for Django": (
        "django/site/contract.py::test_a_path_in_a_message_imports_nothing",
        "django/site/contract.py::test_the_class_of_an_error_is_found_and_not_imported",
    ),
    "a user of Redis with one role": (
        "fault/server/test_acl_denied.py::test_each_command_on_each_key_is_denied_unless_the_role_lists_it",
        "fault/server/test_acl_verbs.py::test_a_role_may_call_its_verbs_and_no_others",
        "fault/server/test_acl_denied.py::test_a_script_of_ones_own_gives_no_right",
    ),
    "a client that calls functions by hand": (
        "fault/server/test_hostile_calls.py::test_hostile_calls_of_one_queue_harm_none",
        "fault/queue/test_arguments.py::test_what_no_client_sends_is_refused_and_changes_nothing",
        "promises/test_bounds.py::test_no_script_touches_more_beside_more_members_of_an_index",
    ),
    "an operator of a queue": (
        "fault/server/test_acl_denied.py::test_nobody_administers_the_server",
        "fault/server/test_role_table.py::test_no_role_sees_what_shows_payloads_of_all_queues",
        "fault/server/test_role_table.py::test_pauses_limits_weights_settings_and_shards_are_the_operators",
    ),
    "a gateway or proxy that is hostile or broken": (
        "edge/test_answers.py::test_what_an_answer_has_too_many_of_is_noticed_before_it_is_walked",
        "edge/test_answers.py::test_a_call_with_such_a_gateway_ends",
        "edge/test_answers.py::test_an_answer_beyond_all_bounds_is_not_read",
        "gateway/test_access.py::test_tls_and_client_certificates",
    ),
}
"""By who it is, tests that show the row."""

PROMISES = {
    "shardq puts no payload, header, token or password into a log line, a span or an error.": (
        "unit/model/test_model.py::test_no_text_shows_a_payload_a_header_or_a_token",
        "telemetry/test_spans.py::test_no_payload_and_no_token_is_in_any_span",
        "gateway/test_hostile.py::test_logs_name_clients_and_never_what_is_secret",
        "edge/test_secrets.py::test_secrets_are_in_no_text",
        "hostile/test_entries.py::test_no_error_shows_what_may_be_a_secret",
        "conformance/write/test_names.py::test_an_error_never_shows_the_payload",
    ),
    "Nothing from outside is unpickled or evaluated.": (
        "house/test_named.py::test_only_names_of_the_program_and_of_its_operator_become_code",
    ),
    "A name in a message imports nothing.": (
        "house/test_named.py::test_only_names_of_the_program_and_of_its_operator_become_code",
        "django/site/contract.py::test_a_path_in_a_message_imports_nothing",
    ),
    "All that comes from outside has a bound": (
        "gateway/test_hostile.py::test_a_request_beyond_all_bounds_is_not_read",
        "gateway/test_counts.py::test_what_a_request_has_many_of_stops_nobody",
        "hostile/test_files.py::test_what_cannot_be_read_is_an_error",
        "conformance/client/test_growth.py::test_names_that_others_choose_leave_little_behind",
    ),
    "No tenant stops another.": (
        "gateway/test_turns.py::test_three_tokens_get_the_same_whatever_their_connections",
        "gateway/test_neighbours.py::test_a_flood_of_one_token_leaves_another_ones_round_trips_short",
    ),
    "Text of others is escaped on a terminal": (
        "cli/test_hostile_text.py::test_no_command_lets_a_terminal_obey_what_is_stored",
    ),
    "A stranger's trace context is a link": ("gateway/test_traces.py::test_the_context_of_a_client_is_a_link",),
    "Tokens are kept as SHA-256": (
        "gateway/test_access.py::test_a_token_in_another_form_is_none",
        "gateway/test_access.py::test_sighup_reads_the_tokens_anew_and_a_bad_file_changes_nothing",
    ),
}
"""By the words in bold, tests that show the promise."""


def missing(names: tuple[str, ...]) -> list[str]:
    """Those that are no test."""
    found = []
    for each in names:
        path, _, name = each.partition("::")
        file = ROOT / "tests" / path
        if not file.is_file() or not re.search(rf"^ *(?:async )?def {name}\(", file.read_text(), re.MULTILINE):
            found.append(each)
    return found


def test_each_actor_has_tests() -> None:
    assert ROW.findall(section(PAGE, "## Who may do what?")) == [*ACTORS]


def test_each_promise_has_tests() -> None:
    promises = PROMISE.findall(section(PAGE, "## What is promised?"))
    assert [" ".join(each.split()) for each in promises] == [*PROMISES]


@pytest.mark.parametrize("names", [*ACTORS.values(), *PROMISES.values()], ids=[*ACTORS, *PROMISES])
def test_these_tests_are_there(names: tuple[str, ...]) -> None:
    assert missing(names) == []


@pytest.mark.parametrize("wrong", ["gateway/test_access.py::test_no", "gateway/test_no.py::test_tls", "house"])
def test_what_is_no_test_is_found(wrong: str) -> None:
    assert missing((wrong,)) == [wrong]
