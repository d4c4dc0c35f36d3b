#!/bin/sh
# Stands in for the daemon in the testkit's own tests: behaves as `nexus3 serve` does around its start and its end.
# Called as: stand-in.sh serve --port N --home DIR [...]; STAND_IN_PORT is where somebody listens.
home=$5
printf 'sk-stand-in\n' >"$home/rpc-$STAND_IN_PORT.token"
printf 'args: %s\nenv: %s\n' "$*" "$(env | cut -d= -f1 | sort | tr '\n' ' ')" >&2
test -f "$home/config.toml" && cat "$home/config.toml" >&2
trap 'echo stopping >&2; exit 7' TERM
printf 'Welcome\nServer: http://127.0.0.1:%s\n' "$STAND_IN_PORT"
# A shell takes a signal between two commands, so the commands are short.
while :; do sleep 0.05; done
