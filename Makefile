# wav.cu: `make help` tells the targets and variables.
#
# One source, train_gpt.cu, is compiled once per build; the include path chooses layers/plain or layers/cpu, and with it
# what device:: means. All builds have the same bits (layers/exact.cuh), so none may contract or reorder: -ffp-contract=off.

CXX    ?= g++
ARCH   ?= native
OPENMP ?= 1
BUILD  ?=
OUT    ?= build
ifeq ($(origin CXX),default)
CXX := g++
endif

TARGET_MACHINE := $(shell $(CXX) -dumpmachine 2>/dev/null)
X86 := $(filter x86_64%,$(TARGET_MACHINE))
ARCHES := native avx512 avx2 neon generic wide
ifeq ($(filter $(ARCH),$(ARCHES)),)
$(error ARCH=$(ARCH) is none of: $(ARCHES))
endif
FLAGS_native  := $(if $(X86),-march=native,-mcpu=native)
FLAGS_avx512  := -march=x86-64-v4 -mprefer-vector-width=512
FLAGS_avx2    := -march=x86-64-v3
FLAGS_neon    := -march=armv8-a
FLAGS_generic := $(if $(X86),-march=x86-64,-march=armv8-a)
# the tiles, lanes and tails of the AVX-512 build, made of narrower instructions: tests them where there is no AVX-512
FLAGS_wide    := $(if $(X86),-march=x86-64-v3) -DSIMD_WIDTH=16

COMMIT   := $(shell git describe --always --dirty 2>/dev/null || echo unknown)
WARNINGS := -Wall -Wextra -Werror -Wno-unknown-pragmas -Wno-ignored-attributes -Wno-maybe-uninitialized \
            -Wno-unknown-warning-option -Wno-psabi -Wno-unused-command-line-argument
OMP      := $(if $(filter 1,$(OPENMP)),-fopenmp)
CXXFLAGS := -std=c++17 -ffp-contract=off -fno-math-errno $(WARNINGS) -I. -O3 $(FLAGS_$(ARCH)) $(OMP) $(EXTRA)
INCLUDE_plain := -Ilayers/plain
INCLUDE_cpu   := -Ilayers/cpu
STAMP    := -DWAV_COMMIT='"$(COMMIT)"'

HAVE = $(shell command -v $(1) >/dev/null 2>&1 && echo yes)
TESTS := exact data options safetensors runtime layers bits model routers mixer_bits routes
TEST_BINARIES := $(TESTS:%=$(OUT)/test_%)

.PHONY: default all plain cpu demo test test-all bench clean help configure readme
default: configure
	@$(MAKE) --no-print-directory $(if $(BUILD),$(BUILD),cpu)
	@ln -sf $(OUT)/train_gpt_$(if $(BUILD),$(BUILD),cpu) train_gpt
	@echo "./train_gpt is the $(if $(BUILD),$(BUILD),cpu) build"

configure:
	@echo "build $(if $(BUILD),$(BUILD) (BUILD=),cpu (no CUDA build yet)), ARCH=$(ARCH)"
	@echo "$(CXX): $(if $(TARGET_MACHINE),found for $(TARGET_MACHINE),not found: install g++ or set CXX=)"
	@echo "OpenMP: $(if $(OMP),on,off (OPENMP=0): one thread)"
	@echo "python3: $(if $(call HAVE,python3),found: plots and the PyTorch reference can run,not found: no plots)"

all: plain cpu
plain: $(OUT)/train_gpt_plain
cpu: $(OUT)/train_gpt_cpu

# the command that was used is part of the dependencies: another ARCH or CXX builds anew
$(OUT)/flags: FORCE
	@mkdir -p $(OUT)
	@echo '$(CXX) $(CXXFLAGS)' | cmp -s - $@ || echo '$(CXX) $(CXXFLAGS)' > $@
# so is the commit, which run.json names
$(OUT)/commit: FORCE
	@mkdir -p $(OUT)
	@echo '$(COMMIT)' | cmp -s - $@ || echo '$(COMMIT)' > $@
FORCE:

$(OUT)/train_gpt_plain $(OUT)/train_gpt_cpu: $(OUT)/train_gpt_%: train_gpt.cu $(OUT)/flags $(OUT)/commit
	$(CXX) $(CXXFLAGS) $(INCLUDE_$*) $(STAMP) -MMD -MP -MF $@.d -x c++ $< -o $@

# test_bits and the bench see both namespaces; the truth is tested in the plain build
$(TEST_BINARIES): $(OUT)/test_%: test/test_%.cu $(OUT)/flags
	$(CXX) $(CXXFLAGS) -Ilayers/$(if $(filter bits mixer_bits,$*),cpu,plain) -MMD -MP -MF $@.d -x c++ $< -o $@
$(OUT)/bench: dev/bench.cu $(OUT)/flags $(OUT)/commit
	$(CXX) $(CXXFLAGS) -Ilayers/cpu $(STAMP) -MMD -MP -MF $@.d -x c++ $< -o $@ -ldl

-include $(wildcard $(OUT)/*.d)

# One binary per experiment: dev/experiments/NAME.options, one option a line, is baked into build/NAME
EXPERIMENTS := $(patsubst dev/experiments/%.options,%,$(wildcard dev/experiments/*.options))
.PHONY: $(EXPERIMENTS)
$(EXPERIMENTS): %: $(OUT)/%
$(OUT)/build: FORCE
	@mkdir -p $(OUT)
	@echo '$(BUILD)' | cmp -s - $@ || echo '$(BUILD)' > $@
$(EXPERIMENTS:%=$(OUT)/%): $(OUT)/%: dev/experiments/%.options train_gpt.cu $(OUT)/flags $(OUT)/commit $(OUT)/build
	sed 's/[\\"]/\\&/g; s/.*/"&\\n"/' $< > $@.inc
	$(CXX) $(CXXFLAGS) $(INCLUDE_$(if $(BUILD),$(BUILD),cpu)) $(STAMP) -DWAV_EXPERIMENT='"$(abspath $@).inc"' \
	  -MMD -MP -MF $@.d -x c++ train_gpt.cu -o $@

demo: $(OUT)/train_gpt_cpu
	@sh dev/demo.sh $(OUT)/train_gpt_cpu

# the programs are built in parallel, whether make was called with -j or not
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
.PHONY: test-programs
test-programs: $(TEST_BINARIES) plain cpu
test test-all:
	@$(MAKE) --no-print-directory -j$(JOBS) test-programs
	@sh test/run.sh $(OUT) $(if $(filter test,$@),essential,all)

bench: $(OUT)/bench
	$(OUT)/bench

readme: $(OUT)/train_gpt_cpu
	@sh dev/readme_options.sh $(OUT)/train_gpt_cpu

clean:
	rm -rf build train_gpt

help:
	@echo "make            build ./train_gpt (today the cpu build; BUILD=plain for the definition)"
	@echo "make plain      build/train_gpt_plain: scalar loops, the definition of the bits; slow on purpose"
	@echo "make cpu        build/train_gpt_cpu: SIMD and OpenMP, the same bits"
	@echo "make demo       about two minutes: make stories, train a small model, sample, plot (where matplotlib is)"
	@echo "make test       the essential tests, under 5 minutes; make test-all adds compilers, instruction sets, sanitizers"
	@echo "make bench      every layer and the whole step as a share of the FMA peak measured in the same run"
	@echo "make NAME       build/NAME with the options of dev/experiments/NAME.options: $(EXPERIMENTS)"
	@echo "make readme     writes the option tables of README.md anew from the program's own --help=markdown"
	@echo "make clean"
	@echo "variables: CXX=$(CXX)  ARCH=native|avx512|avx2|neon|generic|wide  OPENMP=0|1  BUILD=plain|cpu  OUT=build"
