#!/bin/sh
# Fake daemon for the testkit's own tests: starts and stops as `nexus3 serve` does.
# Called as: fake-daemon.sh serve --port N --home DIR [...]. FAKE_DAEMON_PORT: port of the server that gets its requests.
home=$5
printf 'sk-fake-daemon\n' >"$home/rpc-$FAKE_DAEMON_PORT.token"
printf 'args: %s\nenv: %s\n' "$*" "$(env | cut -d= -f1 | sort | tr '\n' ' ')" >&2
test -f "$home/config.toml" && cat "$home/config.toml" >&2
trap 'echo stopping >&2; exit 7' TERM
printf 'Welcome\nServer: http://127.0.0.1:%s\n' "$FAKE_DAEMON_PORT"
# A shell handles signals between commands only: sleep in short steps.
while :; do sleep 0.05; done
