# Every target is one script under scripts/, which can be run as well without make.
.PHONY: help demo test quick check conformance-kafka interop bench soak release format setup

help:
	@echo "make demo                 broker, flight data, a pipeline on Spark that is killed in the middle, results to look at"
	@echo "make test                 the tests that every change needs, in some minutes; scripts/test --rest runs the others"
	@echo "make quick                the tests for after each small change, in a minute"
	@echo "make check                format, lint, types, layers, wording"
	@echo "make setup                .venv with everything; the targets do it themselves"
	@echo "make format               format the code"
	@echo "make conformance-kafka    the conformance tests against Apache Kafka"
	@echo "make interop              clients, Pythons and packages of others; scripts/interop LANE runs one part"
	@echo "make bench                the figures of docs/benchmarks.md"
	@echo "make soak                 random tests for hours"
	@echo "make release              sdist and wheels in dist/"
setup:
	scripts/setup
demo:
	scripts/demo
test:
	scripts/test
quick:
	scripts/quick
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
