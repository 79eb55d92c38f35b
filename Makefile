# Every target is one script under scripts/, which can be run as well without make.
.PHONY: demo test check conformance-kafka interop bench soak release format setup

setup:
	scripts/setup
demo:
	scripts/demo
test:
	scripts/test
check:
	scripts/check
conformance-kafka:
	scripts/conformance-kafka
interop:
	scripts/interop
bench:
	scripts/bench
soak:
	scripts/soak
release:
	scripts/release
format:
	scripts/format
