//! Settings, metrics, commands and flags in `docs/operations.md` and the help
//! exist.

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use common::{Serving, floe, get, run};

fn page() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/operations.md");
    fs::read_to_string(path).unwrap()
}

/// The texts between backticks.
fn quoted(page: &str) -> Vec<String> {
    let parts = page.split('`').skip(1).step_by(2);
    parts.map(str::to_owned).collect()
}

#[test]
fn every_setting_of_the_page_exists() {
    let folder = tempfile::tempdir().unwrap();
    let shown = run(folder.path(), &["config", "show", "--json"]).expect(0, &[]);
    let shown: serde_json::Value = serde_json::from_str(&shown.out).unwrap();
    let settings: Vec<&String> = shown.as_object().unwrap().keys().collect();
    let sections: BTreeSet<&str> = settings
        .iter()
        .filter_map(|setting| setting.split('.').next())
        .collect();
    let mut seen = 0;
    for words in quoted(&page()) {
        let name = words.split([' ', '=']).next().unwrap_or_default();
        let Some((section, _)) = name.split_once('.') else {
            continue;
        };
        if !sections.contains(section) || name.ends_with(".floe") {
            continue;
        }
        let is_table = |setting: &&String| setting.starts_with(&format!("{name}."));
        let exists =
            settings.iter().any(|setting| *setting == name) || settings.iter().any(is_table);
        assert!(exists, "`{name}` is no setting");
        seen += 1;
    }
    assert!(seen > 15, "{seen}");
}

#[test]
fn every_metric_of_the_page_is_rendered() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = floe(folder.path());
    command.env("FLOE_MEMCACHED_LISTEN", "127.0.0.1:0");
    command.env("FLOE_TINY_SIZE", "32MiB");
    command.env("FLOE_DEVICE_PATHS", "a.floe,b.floe");
    command.env("FLOE_TINY_PATHS", "c.floe,d.floe");
    command.env("FLOE_OBJECT_CACHE_ONLY", "[{ bucket = 'kept' }]");
    let serving = Serving::spawn(&mut command);
    let metrics = String::from_utf8(get(serving.admin, "/metrics").1).unwrap();
    let mut seen = 0;
    for words in quoted(&page()) {
        if words.starts_with("floe_") {
            // A counter's family has a name without its samples' suffix.
            let family = words.strip_suffix("_total").unwrap_or(&words);
            let is_known = [words.as_str(), family]
                .iter()
                .any(|name| metrics.contains(&format!("# TYPE {name} ")));
            assert!(is_known, "`{words}` is not rendered");
            seen += 1;
        }
    }
    assert!(seen > 5, "{seen}");
    assert_eq!(serving.stop(), 0);
}

#[test]
fn every_command_and_flag_of_the_page_is_known() {
    let folder = tempfile::tempdir().unwrap();
    let mut seen = 0;
    for words in quoted(&page()) {
        let Some(command) = words.strip_prefix("floe ") else {
            continue;
        };
        let mut words = command.split(' ');
        let (name, rest) = (words.next().unwrap(), words.collect::<Vec<_>>());
        let flags = rest.iter().filter(|word| word.starts_with("--"));
        let mut help = run(folder.path(), &[name, "--help"]).expect(0, &[]).out;
        if name == "volume" {
            for action in rest.iter().take(1).flat_map(|words| words.split('|')) {
                let of_action = run(folder.path(), &[name, action, "--help"]);
                help += &of_action.expect(0, &[]).out;
            }
        }
        for flag in flags {
            assert!(help.contains(flag), "`floe {name}` has no {flag}");
        }
        if name == "config" {
            for action in rest.iter().flat_map(|words| words.split('|')) {
                run(folder.path(), &["config", action, "--help"]).expect(0, &[]);
            }
        }
        seen += 1;
    }
    assert!(seen > 5, "{seen}");
}

#[test]
fn the_help_tells_how_flags_take_values() {
    let folder = tempfile::tempdir().unwrap();
    let help = run(folder.path(), &["serve", "--help"]).expect(0, &[]).out;
    let help: Vec<&str> = help.split_whitespace().collect();
    let help = help.join(" ");
    assert!(help.contains("[a value needs `=`: --tiny-enabled=…]"));
}

/// The beginning of each statement of the page, and the tests that prove it:
/// files below `crates/`, or in `lab/` or `xtask/`, and their functions.
const PROOFS: &[(&str, &str)] = &[
    (
        "For operators of",
        "floe-cli/tests/operations.rs:every_statement_of_the_page_names_its_tests floe-cli/tests/configuration.rs:the_reference_page_is_current",
    ),
    (
        "Floe keeps chunks in one",
        "floe-cli/tests/serving.rs:memcached_is_served_beside_s3_and_restarts_warm",
    ),
    (
        "Floe looks at a file",
        "floe-cli/tests/serving.rs:a_foreign_file_keeps_its_length floe-cli/tests/serving.rs:foreign_data_is_never_wiped_without_consent",
    ),
    (
        "* A file is empty",
        "floe-device/src/file/tests.rs:zeros_and_holes_are_empty floe-device/src/file/tests.rs:data_never_counts_as_empty",
    ),
    (
        "* A block device is empty",
        "floe-device/src/file/tests.rs:every_foreign_signature_is_recognised_by_name floe-device/tests/block_device.rs:foreign_data_is_named_and_left_alone floe-device/tests/block_device.rs:a_mounted_device_is_in_use",
    ),
    (
        "* A directory, pipe",
        "floe-cli/tests/serving.rs:paths_that_are_no_files_are_rejected_unchanged",
    ),
    (
        "* A cache of another size",
        "floe-cli/tests/serving.rs:a_cache_of_another_size_is_not_extended",
    ),
    (
        "`floe format --force` wipes",
        "floe-cli/tests/serving.rs:foreign_data_is_never_wiped_without_consent",
    ),
    (
        "| `device.size` |",
        "floe-device/tests/file.rs:discard_gives_space_back_and_can_be_turned_off floe-device/tests/file.rs:reserved_space_is_taken_at_once_and_kept_when_its_zone_is_reset",
    ),
    (
        "| `device.zone_size` |",
        "floe-device/tests/file.rs:the_default_zone_size_fits_the_device",
    ),
    (
        "| `object.chunk_size` |",
        "floe-cli/tests/serving.rs:the_error_of_a_chunk_larger_than_a_zone_names_a_valid_size",
    ),
    (
        "| `chunk.size` |",
        "floe-cli/tests/serving.rs:the_error_of_a_chunk_larger_than_a_zone_names_a_valid_size",
    ),
    (
        "| `ram.size` |",
        "floe-server/tests/memcached/pressure.rs:readers_that_do_not_read_do_not_stop_gets_from_flash",
    ),
    (
        "| `chunk.write_buffer` |",
        "floe/tests/store_ram.rs:a_value_is_found_in_memory_then_on_flash_then_in_ram",
    ),
    ("Resident memory does not", "xtask/src/memory.rs:run"),
    (
        "`object.consistency` says",
        "floe/src/object/tests/law.rs:consistency_modes_ask_the_origin_as_often_as_they_say",
    ),
    (
        "| `etag` (default)",
        "floe/src/object/tests/law.rs:consistency_modes_ask_the_origin_as_often_as_they_say floe/src/object/tests/law.rs:a_version_is_confirmed_without_a_request floe/src/origin/directory/tests.rs:only_the_newest_version_is_confirmed",
    ),
    (
        "| `ttl` |",
        "floe/src/object/tests/virtual_time.rs:metadata_is_used_for_its_lifetime_only",
    ),
    (
        "| `events` | while",
        "floe/src/object/tests/neighbours.rs:each_mode_keeps_its_promise_beside_another_cache_and_direct_writers floe-cli/tests/events.rs:notifications_take_the_place_of_requests_to_the_origin",
    ),
    (
        "| `immutable` |",
        "floe/src/object/tests/law.rs:consistency_modes_ask_the_origin_as_often_as_they_say",
    ),
    (
        "Writes and deletes through",
        "floe/src/object/tests/law.rs:a_fetch_that_read_the_old_version_does_not_outlive_a_write floe/src/object/tests/law.rs:versions_never_mix_when_the_object_changes_between_chunks",
    ),
    (
        "An overwrite or a delete",
        "floe/tests/store_oracle.rs:power_loss_small_values floe/tests/tiny_oracle.rs:power_loss",
    ),
    (
        "`SIGTERM` makes `/ready` answer 404",
        "floe-server/tests/frontends/robustness.rs:a_shutdown_tells_load_balancers_before_it_begins floe-server/tests/frontends/robustness.rs:a_shutdown_finishes_running_requests_and_accepts_no_more floe-cli/tests/operations.rs:a_second_signal_stops_at_once_with_its_own_status",
    ),
    (
        "After `kill -9`",
        "floe/tests/slots_restart.rs:hot_and_new_values_outlive_a_kill floe-server/tests/frontends/admin.rs:health_responds_at_the_connection_limit floe-cli/tests/operations.rs:a_second_signal_stops_at_once_with_its_own_status",
    ),
    (
        "`SIGHUP` reads",
        "floe-cli/tests/reloading.rs:sighup_applies_settings_that_need_no_restart",
    ),
    (
        "* `log.level`; `s3.keys` and `s3.policies`",
        "floe-cli/tests/reloading.rs:sighup_applies_settings_that_need_no_restart floe-server/tests/frontends/s3_policies.rs:a_reload_replaces_policies_with_keys floe-cli/tests/reloading.rs:sighup_opens_the_access_log_again floe-server/tests/frontends/s3_tls.rs:a_reload_applies_a_new_certificate xtask/src/attack/crowds.rs:hang_up",
    ),
    (
        "* limits, time-outs",
        "floe-cli/tests/reloading.rs:sighup_applies_the_limits_that_the_operations_page_lists",
    ),
    (
        "* how objects are cached",
        "floe-cli/tests/reloading.rs:sighup_applies_the_rules_of_objects floe/src/object/tests/rules.rs:a_reload_holds_for_the_next_read",
    ),
    (
        "* `origin.requests`",
        "floe-cli/tests/reloading.rs:sighup_applies_limits_and_names_those_that_need_a_restart",
    ),
    (
        "Connections that are open",
        "floe-cli/tests/reloading.rs:sighup_applies_a_new_certificate_and_keeps_the_old_one_if_it_is_invalid",
    ),
    (
        "A file of tiny objects",
        "floe-cli/tests/damage.rs:a_broken_tiny_file_does_not_keep_s3_from_starting",
    ),
    (
        "`packaging/` has",
        "floe-cli/tests/packaging.rs:the_systemd_unit_is_valid",
    ),
    (
        "| 0 |",
        "floe-cli/tests/serving.rs:the_first_start_serves_the_demo_object_and_restarts_warm",
    ),
    (
        "| 2 |",
        "floe-cli/tests/command_line.rs:wrong_usage_is_status_2 floe-cli/tests/packaging.rs:the_systemd_unit_is_valid",
    ),
    (
        "| 3 |",
        "floe-cli/tests/serving.rs:a_port_in_use_is_an_environment_error floe-cli/tests/serving.rs:an_unwritable_data_dir_is_an_environment_error",
    ),
    (
        "| 4 |",
        "floe-cli/tests/serving.rs:a_flipped_byte_is_found_by_check_and_not_served",
    ),
    (
        "| 5 |",
        "lab/floe-lab/tests/evaluating.rs:an_unexpected_verdict_is_exit_status_5",
    ),
    (
        "| 70 |",
        "floe-cli/src/failure.rs:each_kind_of_failure_has_its_status",
    ),
    (
        "| 130, 143 |",
        "floe-cli/tests/operations.rs:a_second_signal_stops_at_once_with_its_own_status",
    ),
    (
        "S3 checks SigV4",
        "floe-server/tests/frontends/s3_auth.rs:signed_requests_are_served_and_others_rejected floe-server/tests/frontends/s3_tls.rs:a_client_signs_reads_and_writes_over_tls floe-server/tests/frontends/s3_auth.rs:anonymous_frontends_listen_only_on_loopback_by_default floe-cli/tests/serving.rs:the_first_start_serves_the_demo_object_and_restarts_warm",
    ),
    (
        "`s3.policies` restricts",
        "floe-server/tests/frontends/s3_policies.rs:a_reader_reads_its_bucket_on_every_way_and_nothing_else floe-server/tests/frontends/s3_policies.rs:a_writer_stays_below_its_prefix floe-server/tests/frontends/s3_forward.rs:policies_hold_for_requests_that_are_sent_on floe-server/src/frontends/tests.rs:invalid_configurations_are_rejected_with_setting_and_remedy",
    ),
    (
        "memcached asks for",
        "floe-server/tests/memcached/limits.rs:clients_without_a_password_are_rejected floe-server/src/frontends/tests.rs:invalid_configurations_are_rejected_with_setting_and_remedy floe-server/tests/memcached/tls.rs:everything_is_served_over_tls",
    ),
    (
        "Metrics and health have",
        "floe-server/src/frontends/tests.rs:allowed_open_frontends_are_listed floe-server/tests/frontends/admin.rs:commands_without_the_token_or_from_a_browser_are_refused floe-cli/tests/configuration.rs:frontends_open_to_other_machines_cause_a_warning",
    ),
    (
        "In front of an S3 service",
        "floe-server/tests/frontends/origins.rs:a_real_s3_origin_answers_for_itself floe-server/tests/frontends/s3_write.rs:put_then_get_then_delete floe-server/tests/frontends/s3_write.rs:copies floe-server/tests/frontends/s3_write.rs:deleting_many floe-server/tests/frontends/s3_write.rs:listings_page_and_fold floe-server/tests/frontends/s3_write.rs:buckets floe-server/tests/frontends/origins.rs:uploads_under_way_are_listed_and_parts_copied",
    ),
    (
        "| `CreateBucket` |",
        "floe-server/tests/frontends/origins.rs:a_directory_makes_buckets",
    ),
    (
        "| `DeleteBucket` |",
        "floe-server/tests/frontends/s3_directory.rs:a_bucket_with_an_object_stays floe/src/origin/directory/tests.rs:buckets_are_deleted_without_objects_only",
    ),
    (
        "| `ListObjectVersions` |",
        "floe-server/tests/frontends/s3_directory.rs:versions_are_listed_in_pages",
    ),
    (
        "| `CompleteMultipartUpload` once more,",
        "floe/src/origin/directory/tests.rs:parts_become_an_object_in_order_or_not_at_all floe-server/tests/frontends/s3_directory.rs:checksums_of_parts_make_that_of_the_whole",
    ),
    (
        "| `partNumber` in a GET or HEAD |",
        "floe-server/tests/frontends/s3_directory.rs:parts_are_read_as_they_were_uploaded",
    ),
    (
        "| `x-amz-mp-object-size` |",
        "floe-server/tests/frontends/s3_cache_only.rs:uploads_in_parts_have_the_announced_size",
    ),
    (
        "| conditions of PUT,",
        "floe-server/tests/frontends/s3_directory.rs:writes_and_deletes_keep_their_conditions floe/src/origin/directory/tests.rs:conditional_writes_are_atomic floe-server/tests/frontends/s3_write.rs:conditional_puts",
    ),
    (
        "| `ETag` |",
        "floe/src/origin/directory/tests.rs:tags_are_made_of_the_bytes_until_another_program_writes floe-server/tests/frontends/s3_directory.rs:conditions_compare_the_tag_that_clients_see",
    ),
    (
        "| `x-amz-checksum-…` of an upload |",
        "floe-server/tests/frontends/s3_directory.rs:checksums_are_stored_and_returned floe-server/tests/frontends/s3_write.rs:wrong_checksums_store_nothing",
    ),
    (
        "| `ListParts`",
        "floe-server/tests/frontends/origins.rs:uploads_under_way_are_listed_and_parts_copied floe-server/tests/frontends/s3_directory.rs:uploads_under_way_are_folded",
    ),
    (
        "| versions, tags",
        "floe-server/tests/frontends/s3_kept.rs:headers_are_honoured_or_rejected floe-server/tests/frontends/s3_read.rs:unsupported_headers_are_rejected_not_ignored",
    ),
    (
        "| `Expires` |",
        "floe-server/tests/frontends/s3_kept.rs:accepted_headers_are_returned floe/src/origin/remote/tests.rs:metadata_that_is_not_ascii_is_encoded_or_rejected",
    ),
    (
        "| a storage class",
        "floe-server/tests/frontends/s3_kept.rs:headers_are_honoured_or_rejected floe-server/tests/frontends/s3_kept.rs:accepted_headers_are_returned",
    ),
    (
        "| metadata that is not ASCII",
        "floe-server/tests/frontends/s3_kept.rs:accepted_headers_are_returned floe/src/origin/remote/tests.rs:metadata_that_is_not_ascii_is_encoded_or_rejected",
    ),
    (
        "| keys with `//`",
        "floe-server/tests/frontends/s3_directory.rs:keys_that_are_no_paths_are_objects floe/src/origin/remote/tests.rs:names_that_cannot_be_sent_are_rejected_before_any_request",
    ),
    (
        "| origin down |",
        "xtask/src/faults/mod.rs:origin_down floe/src/object/tests/law.rs:stale_and_negative_responses_need_their_settings floe/src/object/tests/virtual_time.rs:retries_back_off_with_jitter_and_stop",
    ),
    (
        "| origin slow |",
        "xtask/src/faults/mod.rs:origin_slow floe/src/object/tests/virtual_time.rs:the_queue_for_an_origin_is_bounded_in_length_and_in_time floe/src/object/tests/flights.rs:many_readers_cause_one_fetch_and_see_bytes_as_they_arrive",
    ),
    (
        "| misses of one S3 client",
        "floe-server/tests/frontends/s3_turns.rs:a_client_whose_misses_are_slow_and_many_holds_up_no_other floe/src/object/tests/clients.rs:clients_take_turns_at_the_origin floe/src/object/tests/clients.rs:a_full_queue_refuses_those_of_the_client_that_filled_it",
    ),
    (
        "| origin redirects",
        "floe/src/origin/remote/tests.rs:redirects_stay_at_the_origin xtask/src/attack/s3.rs:redirects",
    ),
    (
        "| origin sends a short",
        "floe/src/object/tests/flights.rs:a_short_body_is_resumed_or_is_an_error_and_not_stored",
    ),
    (
        "| object changes",
        "floe/src/object/tests/law.rs:a_change_before_the_first_byte_begins_the_read_anew floe/src/object/tests/law.rs:versions_never_mix_when_the_object_changes_between_chunks",
    ),
    (
        "| upload below",
        "floe-server/tests/frontends/robustness.rs:an_upload_below_the_least_rate_is_rejected floe-server/tests/frontends/robustness.rs:uploads_that_wait_for_their_bodies_stop_no_reader floe-server/tests/frontends/robustness.rs:copies_that_wait_to_upload_stop_no_reader",
    ),
    (
        "| flash read error",
        "floe-cli/tests/serving.rs:a_flipped_byte_is_found_by_check_and_not_served floe/tests/store_oracle.rs:power_loss_and_rough_reads_of_large_values",
    ),
    (
        "| flash write error |",
        "floe/tests/store_oracle.rs:mixed_values_sieve_with_faults floe/tests/tiny_damage.rs:writes_that_fail_cost_zones_and_not_the_few_that_may_be_open",
    ),
    (
        "| full file system |",
        "floe/tests/full_below.rs:values_that_fit_a_full_disk_are_kept xtask/src/faults/disk.rs:full",
    ),
    (
        "| device too small for",
        "xtask/src/faults/disk.rs:too_small",
    ),
    (
        "| file of another plan |",
        "floe-cli/tests/serving.rs:another_plan_is_rejected_with_both_remedies",
    ),
    (
        "| foreign data |",
        "floe-cli/tests/serving.rs:foreign_data_is_never_wiped_without_consent xtask/src/attack/files.rs:foreign_files",
    ),
    (
        "| a crash while Floe replaces a superblock",
        "floe-cli/tests/damage.rs:a_cache_without_a_sound_superblock_is_taken_for_foreign_data floe/src/metadata_log/tests/mod.rs:one_of_two_superblocks_may_rot",
    ),
    (
        "| more connections than `s3.",
        "floe-server/tests/frontends/robustness.rs:idle_connections_make_room floe-server/tests/frontends/robustness.rs:connections_over_the_limit_wait_for_their_turn",
    ),
    (
        "| more busy connections of one address",
        "floe-server/tests/frontends/robustness.rs:a_client_with_too_many_busy_connections_is_slowed_and_no_other",
    ),
    (
        "| more connections than `memcached.",
        "floe-server/tests/memcached/limits.rs:too_many_connections_get_an_error",
    ),
    (
        "| `floe_s3_requests_denied_total`",
        "floe-server/tests/frontends/s3_policies.rs:the_short_way_enforces_policies_of_unsigned_reads",
    ),
    (
        "| `floe_s3_access_log_dropped_total`",
        "floe-server/src/frontends/s3/access_log/tests.rs:a_full_queue_and_a_full_disk_drop_lines",
    ),
    (
        "`s3.access_log` names",
        "floe-server/tests/frontends/s3_access_log.rs:reads_have_the_same_lines_on_both_ways floe-server/src/frontends/s3/access_log/tests.rs:a_path_that_cannot_be_written_is_named floe-cli/tests/reloading.rs:sighup_opens_the_access_log_again",
    ),
    (
        "| `floe_cache_only_objects`",
        "floe/src/object/tests/cache_only.rs:objects_are_read_as_written_replaced_and_deleted",
    ),
    (
        "| `floe_pinned_bytes`",
        "floe/src/object/tests/pins.rs:pinned_objects_outlive_turnovers_and_restarts_until_they_are_unpinned floe/src/object/tests/pins.rs:above_its_cap_a_pin_keeps_nothing_more",
    ),
    (
        "| `floe_origin_requests_total`",
        "floe/src/object/tests/law.rs:consistency_modes_ask_the_origin_as_often_as_they_say floe-server/tests/frontends/s3_forward.rs:requests_to_the_origin_are_counted_by_reason",
    ),
    (
        "`http://127.0.0.1:9100/metrics`",
        "floe-server/tests/frontends/admin.rs:metrics_count_what_happened xtask/src/tidy/dashboard.rs:exported",
    ),
    (
        "| `floe_device_operation_duration_seconds` |",
        "floe-device/tests/wrappers.rs:meters_count_latency_bytes_errors_and_operations_in_flight floe-server/tests/frontends/admin.rs:the_device_is_metered",
    ),
    (
        "| `floe_device_operation_bytes_total`",
        "floe-device/tests/wrappers.rs:meters_count_latency_bytes_errors_and_operations_in_flight",
    ),
    (
        "| `floe_device_operations_abandoned_total`",
        "floe-device/tests/wrappers.rs:meters_count_latency_bytes_errors_and_operations_in_flight",
    ),
    (
        "| `floe_device_drives`, `floe_tiny_drives` |",
        "floe-cli/tests/array.rs:an_array_of_files_is_whole_or_refused",
    ),
    (
        "| a drive of an array fails |",
        "floe-device/tests/array.rs:a_drive_that_fails_is_dropped_and_stays_dropped floe/tests/array_oracle.rs:chunks_in_a_log",
    ),
    (
        "| `floe_tiny_live_objects`",
        "floe-core/src/tiny/nemo/live_sample.rs:the_estimate_keeps_its_documented_error floe/tests/tiny_sizes.rs:live_objects_are_those_that_a_get_finds_before_and_after_a_restart",
    ),
    (
        "| `floe_tiny_copies_on_flash` |",
        "floe-core/src/tiny/nemo/live_sample.rs:the_estimate_keeps_its_documented_error",
    ),
    (
        "| `floe_memcached_memory_bytes` |",
        "floe-server/tests/memcached/pressure.rs:values_from_memory_count_while_clients_do_not_read_them",
    ),
    (
        "| `floe_read_first_byte_seconds`",
        "lab/floe-lab/tests/driving.rs:a_bench_of_the_s3_server_reports_hits_and_misses lab/floe-lab/tests/driving.rs:an_experiment_drives_the_socket_of_oxcache",
    ),
    (
        "| `floe_request_first_byte_seconds`",
        "lab/floe-lab/tests/driving.rs:a_bench_of_the_s3_server_reports_hits_and_misses",
    ),
    (
        "| `floe_memcached_get_duration_seconds`",
        "lab/floe-lab/tests/driving.rs:a_bench_of_the_memcached_server_reports_hits_and_misses",
    ),
    (
        "* `floe check` verifies",
        "floe-cli/tests/damage.rs:check_covers_tiny_objects floe-cli/tests/volume_commands.rs:check_and_inspect_cover_the_cache_of_volumes floe-cli/tests/damage.rs:a_damaged_superblock_is_replaced_by_its_copy floe/src/inspect/tests.rs:every_flipped_bit_is_located",
    ),
    (
        "* `floe check --device-path FILE` verifies a cache of volumes",
        "floe-cli/tests/volumes.rs:a_cache_of_volumes_is_inspected_and_checked floe/src/inspect/tests_volume.rs:blocks_that_contradict_each_other_are_reported",
    ),
    (
        "| a panic, which is a defect of Floe",
        "floe/tests/panics.rs:a_batch_in_a_log_is_given_up floe/tests/panics.rs:a_reclaimer_that_panics_poisons_the_cache",
    ),
    (
        "* `floe cache ls|warm|purge|pin",
        "floe-cli/tests/cache_commands.rs:objects_are_listed_and_warmed floe-cli/tests/cache_commands.rs:a_purge_holds_after_a_kill floe-cli/tests/cache_commands.rs:pins_are_set_listed_and_removed_and_survive_a_kill floe-server/src/frontends/control/tests.rs:only_the_owner_can_open_the_socket",
    ),
    (
        "[`floe@.service`]",
        "floe-cli/tests/packaging.rs:the_systemd_template_and_its_drop_in_are_valid",
    ),
    (
        "[A second one](../packaging/grafana/fleet.json)",
        "xtask/src/tidy/dashboard.rs:exported",
    ),
    (
        "| 1 | `floe ring check`",
        "floe-cli/tests/command_line.rs:a_ring_that_ejects_nodes_lies_unless_they_know_it floe-cli/tests/nodes.rs:the_state_of_nodes_is_shown_and_disagreement_is_found",
    ),
    (
        "| `floe_node_info`",
        "floe-server/tests/frontends/node.rs:a_node_refuses_keys_of_others",
    ),
    (
        "| `floe_node_eras_total`",
        "floe-server/tests/frontends/node.rs:a_node_refuses_keys_of_others",
    ),
    (
        "* `floe volume status|attach",
        "floe-cli/tests/volume_commands.rs:volumes_are_operated_while_the_server_runs floe-cli/tests/volume_commands.rs:dirty_data_is_flushed_without_a_server floe-cli/tests/volume_commands.rs:backing_files_are_made_sparse_or_allocated floe-server/src/frontends/control/tests.rs:only_the_owner_can_open_the_socket",
    ),
    (
        "* `floe inspect`",
        "floe-cli/tests/serving.rs:slots_are_inspected_and_checked",
    ),
    (
        "* `floe config check",
        "floe-cli/tests/operations.rs:every_command_and_flag_of_the_page_is_known floe-cli/tests/configuration.rs:a_flag_wins_over_a_variable_over_the_file",
    ),
    (
        "* `floe bench` and",
        "lab/floe-lab/tests/evaluating.rs:a_bench_leaves_rows_and_a_report lab/floe-lab/tests/evaluating.rs:a_replay_counts_misses lab/floe-lab/tests/driving.rs:an_origin_is_measured_into_a_file_that_is_replayed",
    ),
];

/// Lines with statements, without headings and table heads.
fn statements(page: &str) -> Vec<&str> {
    let lines: Vec<&str> = page.lines().collect();
    let is_rule = |line: &&str| line.starts_with("|---");
    let is_statement = |at: &usize| {
        let (line, next) = (lines[*at], lines.get(at + 1));
        let is_head = line.starts_with('|') && next.is_some_and(is_rule);
        !(line.is_empty() || line.starts_with('#') || is_rule(&line) || is_head)
    };
    let at = (0..lines.len()).filter(is_statement);
    at.map(|at| lines[at]).collect()
}

#[test]
fn every_statement_of_the_page_names_its_tests() {
    let page = page();
    let statements = statements(&page);
    for statement in &statements {
        let proofs = PROOFS
            .iter()
            .filter(|(start, _)| statement.starts_with(start));
        assert_eq!(
            proofs.count(),
            1,
            "PROOFS names no test, or two, of: {statement}"
        );
    }
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    for (start, tests) in PROOFS {
        let is_stated = statements.iter().any(|line| line.starts_with(start));
        assert!(is_stated, "the page no longer says: {start}");
        for test in tests.split(' ') {
            let (file, function) = test.split_once(':').unwrap();
            let below = if file.starts_with("xtask/") || file.starts_with("lab/") {
                ""
            } else {
                "crates/"
            };
            let source = fs::read_to_string(format!("{root}/{below}{file}")).unwrap_or_default();
            assert!(
                source.contains(&format!("fn {function}(")),
                "there is no test {test}"
            );
        }
    }
}

#[test]
fn a_second_signal_stops_at_once_with_its_own_status() {
    for (signal, status) in [("-INT", 130), ("-TERM", 143)] {
        let folder = tempfile::tempdir().unwrap();
        let serving = Serving::start(folder.path(), &[]);
        assert_eq!(get(serving.admin, "/ready").0, 200);
        // An upload that delays the shutdown.
        let mut upload = TcpStream::connect(serving.s3).unwrap();
        let head = "PUT /demo/slow HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\
                    Expect: 100-continue\r\n\r\n";
        upload.write_all(head.as_bytes()).unwrap();
        upload.read_exact(&mut [0; 12]).unwrap();
        serving.signal(signal);
        while get(serving.admin, "/ready").0 != 404 {}
        // `timeout` signals the process, and at once its group.
        serving.signal(signal);
        std::thread::sleep(Duration::from_millis(600));
        assert_eq!(get(serving.admin, "/health").0, 200);
        assert_eq!(serving.stop_by(signal), status);
    }
}
