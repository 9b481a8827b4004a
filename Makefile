# wav.cu: `make help` tells the targets and variables.
#
# One source, train_gpt.cu, is compiled once per build; the include path chooses layers/plain, cpu or gpu, and with it
# what device:: means. All builds have the same bits (layers/exact.cuh), so none may contract or reorder: -ffp-contract=off, -fmad=false.

CXX    ?= g++
ARCH   ?= native
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
CXXFLAGS := -std=c++17 -ffp-contract=off -fno-math-errno $(WARNINGS) -I. -O3 $(FLAGS_$(ARCH)) -pthread $(EXTRA)
INCLUDE_plain := -Ilayers/plain
INCLUDE_cpu   := -Ilayers/cpu
STAMP    := -DWAV_COMMIT='"$(COMMIT)"'

# CUDA: the architectures are CUDA_ARCH, else the GPU's of this machine, else those of the four that nvcc knows
CUDA_HOME ?= /usr/local/cuda
NVCC      ?= $(firstword $(shell command -v nvcc 2>/dev/null) $(wildcard $(CUDA_HOME)/bin/nvcc))
GPU_ARCH   = $(eval GPU_ARCH := $(shell nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | \
               grep -xE '[0-9]+\.[0-9]+' | tr -d . | sort -u))$(GPU_ARCH)
NVCC_ARCH  = $(eval NVCC_ARCH := $(filter 80 90 100 120,$(patsubst compute_%,%,$(shell \
               $(NVCC) --list-gpu-arch 2>/dev/null))))$(NVCC_ARCH)
CUDA_ARCH ?= $(or $(GPU_ARCH),$(NVCC_ARCH))
comma     := ,
space     := $(subst ,, )
# g++ sees what nvcc made of the source: its parentheses are not ours
HOST_FLAGS := -ffp-contract=off $(WARNINGS) -Wno-parentheses
NVCCFLAGS  = -std=c++17 -O3 --threads 0 -fmad=false -Werror all-warnings -Xptxas -v -I. $(EXTRA) \
             $(foreach f,$(HOST_FLAGS),-Xcompiler $(f)) $(foreach a,$(CUDA_ARCH),-gencode arch=compute_$(a)$(comma)code=sm_$(a)) \
             -gencode arch=compute_$(lastword $(CUDA_ARCH))$(comma)code=compute_$(lastword $(CUDA_ARCH))
FLAVOUR   ?= fibers

HAVE = $(shell command -v $(1) >/dev/null 2>&1 && echo yes)
TESTS := exact team data options safetensors runtime layers bits model routers mixer_bits routes faults
TEST_BINARIES := $(TESTS:%=$(OUT)/test_%)

.DELETE_ON_ERROR:
.PHONY: default all plain cpu exact emulated demo test test-all bench clean help configure readme
default: configure
	@$(MAKE) --no-print-directory $(if $(BUILD),$(BUILD),cpu)
	@ln -sf $(OUT)/train_gpt_$(if $(BUILD),$(BUILD),cpu) train_gpt
	@echo "./train_gpt is the $(if $(BUILD),$(BUILD),cpu) build"

configure:
	@echo "build $(if $(BUILD),$(BUILD) (BUILD=),cpu (the fast CUDA build does not exist yet; make exact for the exact one)), ARCH=$(ARCH)"
	@echo "$(CXX): $(if $(TARGET_MACHINE),found for $(TARGET_MACHINE),not found: install g++ or set CXX=)"
	@echo "nvcc: $(if $(NVCC),found$(comma) make exact compiles for sm_$(subst $(space), sm_,$(strip $(CUDA_ARCH))),not found: no CUDA builds)"
	@echo "python3: $(if $(call HAVE,python3),found: plots and the PyTorch reference can run,not found: no plots)"

all: plain cpu
plain: $(OUT)/train_gpt_plain
cpu: $(OUT)/train_gpt_cpu
exact: $(OUT)/train_gpt_exact
emulated: $(OUT)/train_gpt_emulated

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

# The kernels, compiled by nvcc; its report on registers, spills and local memory is read by dev/spills.sh
NEED_NVCC = @test -n "$(NVCC)" || { echo "make: no nvcc: install the CUDA Toolkit or set CUDA_HOME=" >&2; exit 1; }
CUDA = sh dev/spills.sh $@.ptxas $(NVCC) $(NVCCFLAGS) -Ilayers/gpu
$(OUT)/cuda_flags: FORCE
	@mkdir -p $(OUT)
	@echo '$(NVCC) $(NVCCFLAGS)' | cmp -s - $@ || echo '$(NVCC) $(NVCCFLAGS)' > $@
$(OUT)/train_gpt_exact: train_gpt.cu $(OUT)/cuda_flags $(OUT)/commit
	$(NEED_NVCC)
	@echo "CUDA architectures: sm_$(subst $(space), sm_,$(strip $(CUDA_ARCH)))$(if $(GPU_ARCH), (of the GPU: $(GPU_ARCH)))"
	$(CUDA) $(STAMP) -MMD -MP -MF $@.d $< -o $@
$(OUT)/exact_bits $(OUT)/exact_mixer_bits: $(OUT)/exact_%: test/test_%.cu $(OUT)/cuda_flags
	$(NEED_NVCC)
	$(CUDA) -MMD -MP -MF $@.d $< -o $@
$(OUT)/exact_bench: dev/gpu_bench.cu $(OUT)/cuda_flags
	$(NEED_NVCC)
	$(CUDA) -MMD -MP -MF $@.d $< -o $@
# The same kernels, executed on the CPU; FLAVOUR=fibers|asan|checked (dev/cuda_on_cpu/README.md)
EMULATOR := $(wildcard dev/cuda_on_cpu/*.cpp dev/cuda_on_cpu/*.h dev/cuda_on_cpu/compile.sh)
EMULATE = CXX="$(CXX)" CUDA_HOME="$(CUDA_HOME)" sh dev/cuda_on_cpu/compile.sh $(FLAVOUR) $@ $(1) -I. -Ilayers/gpu \
          -O1 -fno-math-errno $(WARNINGS) $(EXTRA)
$(OUT)/emulated_flags: FORCE
	@mkdir -p $(OUT)
	@echo '$(CXX) $(CUDA_HOME) $(FLAVOUR) $(EXTRA)' | cmp -s - $@ || echo '$(CXX) $(CUDA_HOME) $(FLAVOUR) $(EXTRA)' > $@
$(OUT)/train_gpt_emulated: train_gpt.cu $(OUT)/emulated_flags $(OUT)/commit $(EMULATOR)
	$(call EMULATE,$<) $(STAMP) -MMD -MP -MF $@.d
$(OUT)/emulated_bits $(OUT)/emulated_mixer_bits: $(OUT)/emulated_%: test/test_%.cu $(OUT)/emulated_flags $(EMULATOR)
	$(call EMULATE,$<) -MMD -MP -MF $@.d
$(OUT)/emulated_bench: dev/gpu_bench.cu $(OUT)/emulated_flags $(EMULATOR)
	$(call EMULATE,$<) -MMD -MP -MF $@.d

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
	$(if $(filter exact,$(BUILD)),$(CUDA) train_gpt.cu -o $@,$(if $(filter emulated,$(BUILD)),$(call EMULATE,train_gpt.cu),\
	  $(CXX) $(CXXFLAGS) $(INCLUDE_$(if $(BUILD),$(BUILD),cpu)) -x c++ train_gpt.cu -o $@)) \
	  $(STAMP) -DWAV_EXPERIMENT='"$(abspath $@).inc"' -MMD -MP -MF $@.d

.PHONY: experiments
experiments: $(OUT)/train_gpt_cpu
	@python3 dev/experiments.py $<

demo: $(OUT)/train_gpt_cpu
	@sh dev/demo.sh $(OUT)/train_gpt_cpu

# one test program alone; ONLY="WORD..." are the cases whose name contains one of the words, ONLY=--list names them
ONLY ?=
.PHONY: $(TESTS:%=test_%)
$(TESTS:%=test_%): %: $(OUT)/%
	@$(OUT)/$@ $(ONLY)

# the programs are built in parallel, whether make was called with -j or not; those of the emulator where it can be
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
EMULATES := $(and $(X86),$(wildcard $(CUDA_HOME)/include/cuda_runtime_api.h))
.PHONY: test-programs
test-programs: $(TEST_BINARIES) plain cpu $(if $(EMULATES),emulated $(OUT)/emulated_bits $(OUT)/emulated_mixer_bits)
test test-all:
	@$(MAKE) --no-print-directory -j$(JOBS) test-programs
	@sh test/run.sh $(OUT) $(if $(filter test,$@),essential,$(if $(REST),rest,all))

bench: $(OUT)/bench
	$(OUT)/bench

readme: $(OUT)/train_gpt_cpu
	@sh dev/generated.sh $(OUT)/train_gpt_cpu

clean:
	rm -rf build train_gpt

help:
	@echo "make            build ./train_gpt (today the cpu build; BUILD=plain for the definition)"
	@echo "make plain      build/train_gpt_plain: scalar loops, the definition of the bits; slow on purpose"
	@echo "make cpu        build/train_gpt_cpu: SIMD and threads, the same bits"
	@echo "make exact      build/train_gpt_exact: CUDA kernels with the same bits; CUDA_ARCH=\"80 90\", else the GPU's, else all"
	@echo "make emulated   build/train_gpt_emulated: the same kernels executed on the CPU, where there is no GPU; slow"
	@echo "make demo       about two minutes: make stories, train a small model, sample, plot (where matplotlib is)"
	@echo "make test       the essential tests, under 5 minutes; make test-all adds compilers, instruction sets, sanitizers,"
	@echo "                deliberate faults; REST=1: only what make test leaves out"
	@echo "make test_NAME  one of its programs: $(TESTS)"
	@echo "                ONLY=\"wav haares\": the cases with one of these words in their name; ONLY=--list names all"
	@echo "make bench      every layer and the whole step as a share of the FMA peak measured in the same run"
	@echo "make NAME       build/NAME with the options of dev/experiments/NAME.options: $(EXPERIMENTS)"
	@echo "make experiments  parameters and FLOPs of every file of dev/experiments (python3; tables are for dev/study.py)"
	@echo "make readme     writes docs/options.md and the methods in README.md anew from the program itself"
	@echo "make clean"
	@echo "variables: CXX=$(CXX)  ARCH=native|avx512|avx2|neon|generic|wide  BUILD=plain|cpu|exact|emulated  OUT=build"
	@echo "           NVCC=  CUDA_HOME=$(CUDA_HOME)  CUDA_ARCH=  FLAVOUR=fibers|asan|checked (emulated)"
