# Tests, benchmarks and examples. Programs that call MPI are built once for each MPI.

MPIS := openmpi mpich
# Before the rules below, whose prerequisites are read as they are defined.
STANDIN      := $(BUILD)/standin
STANDINS     := $(addprefix $(STANDIN)/,old/libnccl.so.2 libcuda.so.1 interposable/libcuda.so.1 libcudart_static.a libcudart.so.13 libnccl.so.2 libnvidia-ml.so.1)
programs = $(patsubst tests/programs/%,%,$(basename $(wildcard tests/programs/*.c tests/programs/*.cpp tests/programs/*.f90)))
PROGRAMS := $(foreach mpi,$(MPIS),$(addprefix $(BUILD)/programs/$(mpi)/,$(programs)))
EXAMPLES := $(foreach mpi,$(MPIS),$(patsubst examples/%.c,$(BUILD)/examples/$(mpi)/%,$(wildcard examples/*.c)) \
              $(patsubst examples/%.f90,$(BUILD)/examples/$(mpi)/%_f,$(wildcard examples/*.f90)))
DRIFT    := $(foreach mpi,$(MPIS),$(BUILD)/tests/drift.$(mpi)) $(BUILD)/tests/drift.nccl
UNIT     := $(call objects,tests/unit)
JOBS     := $(call objects,tests/jobs)
PLUGIN   := $(foreach mpi,$(MPIS),$(BUILD)/programs/$(mpi)/plugin.so)

define mpi_rules
$(BUILD)/programs/$(1)/%: tests/programs/%.c
	@mkdir -p $$(@D)
	$$(call run,MPICC,OMPI_CC=gcc mpicc.$(1) -g -O1 -Wall -Wextra -Werror -pthread -o $$@ $$< -ldl)
$(BUILD)/programs/$(1)/%: tests/programs/%.cpp
	@mkdir -p $$(@D)
	$$(call run,MPICXX,OMPI_CXX=g++ mpicxx.$(1) -std=c++17 -g -O1 -Wall -Wextra -Werror -Wno-cast-function-type -o $$@ $$<)
$(BUILD)/programs/$(1)/%: tests/programs/%.f90
	@mkdir -p $$(@D)
	$$(call run,MPIFC,cd $$(@D) && mpif90.$(1) -g -O1 -o $$(@F) $$(abspath $$<))
$(BUILD)/programs/$(1)/plugin.so: tests/programs/plugin/plugin.c
	@mkdir -p $$(@D)
	$$(call run,MPICC,mpicc.$(1) -g -shared -fPIC -o $$@ $$<)
$(BUILD)/bench/$(1)/%.so: tests/bench/%.c
	@mkdir -p $$(@D)
	$$(call run,MPICC,mpicc.$(1) -O2 -shared -fPIC -o $$@ $$<)
$(BUILD)/bench/$(1)/%: tests/bench/%.c
	@mkdir -p $$(@D)
	$$(call run,MPICC,mpicc.$(1) -O2 -o $$@ $$<)
$(BUILD)/examples/$(1)/%: examples/%.c
	@mkdir -p $$(@D)
	$$(call run,MPICC,mpicc.$(1) -g -O2 -Wall -Wextra -Iinclude -o $$@ $$<)
$(BUILD)/examples/$(1)/%_f: examples/%.f90 include/accel/accel.f90
	@mkdir -p $$@.mod
	$$(call run,MPIFC,mpif90.$(1) -g -O2 -w -J$$@.mod -o $$@ include/accel/accel.f90 $$<)
$(BUILD)/programs/$(1)/hybrid: tests/programs/nccl/hybrid.cc tests/programs/nccl/rank.h | $$(STANDINS)
	@mkdir -p $$(@D)
	$$(call run,MPICXX,OMPI_CXX=g++ mpicxx.$(1) $$(nccl_flags) -Wno-cast-function-type -o $$@ $$< -lnccl $$(STANDIN)/libcudart_static.a -ldl)
$(BUILD)/tests/drift.$(1): tests/drift/drift.cpp shim/signature/*.def shim/signature/*.h shim/interpose/mpi/abi.cpp
	@mkdir -p $$(@D)
	$$(call run,DRIFT,mpicxx.$(1) -std=c++20 -fsyntax-only -Wno-cast-function-type -Ishim -Iinclude tests/drift/drift.cpp && touch $$@)
endef
$(foreach mpi,$(MPIS),$(eval $(call mpi_rules,$(mpi))))

# Stand-ins for the driver, the runtime and NCCL, and programs on them. Headers: the toolkit's, else those that
# deps.sh fetches.
CUDA_INCLUDE = $(firstword $(wildcard $(CUDA_HOME)/include) $(BUILD)/headers)
NCCL_PROGRAMS := $(patsubst tests/programs/nccl/%.cpp,$(BUILD)/programs/nccl/%,$(wildcard tests/programs/nccl/*.cpp)) $(BUILD)/programs/nccl/faults_static
NCCL_EXAMPLES := $(patsubst examples/%.cu,$(BUILD)/examples/nccl/%,$(wildcard examples/*.cu))
standin_flags = -std=c++20 -O1 -g -fPIC -fvisibility=hidden -Wall -Wextra -Werror -MMD -MP -I. -I$(CUDA_INCLUDE) -I$(STANDIN)

$(STANDIN)/standin_documented.inc: tests/standin/cuda/documented.sh
	@mkdir -p $(@D)
	$(call run,GEN,tests/standin/cuda/documented.sh $(CUDA_INCLUDE)/cudaTypedefs.h > $@)
$(STANDIN)/%.o: tests/standin/%.cpp | $(STANDIN)/standin_documented.inc
	@mkdir -p $(@D)
	$(call run,CXX,$(CXX) $(standin_flags) -c -o $@ $<)
$(STANDIN)/libnvidia-ml.so.1: tests/standin/nvml/nvml.cpp
	@mkdir -p $(@D)
	$(call run,LINK,$(CXX) -std=c++20 -O1 -g -fPIC -fvisibility=hidden -Wall -Wextra -Werror -I. -shared -Wl$(,)-soname$(,)libnvidia-ml.so.1 -o $@ $<)
$(STANDIN)/libcuda.so.1: $(addprefix $(STANDIN)/cuda/,driver.o device.o)
	$(call run,LINK,$(CXX) -shared -Wl$(,)-Bsymbolic -Wl$(,)-soname$(,)libcuda.so.1 -Wl$(,)-z$(,)defs -o $@ $^ -pthread && ln -sf libcuda.so.1 $(@D)/libcuda.so)
# One whose references to itself lead to whoever comes first.
$(STANDIN)/interposable/libcuda.so.1: $(addprefix $(STANDIN)/cuda/,driver.o device.o)
	@mkdir -p $(@D)
	$(call run,LINK,$(CXX) -shared -Wl$(,)-soname$(,)libcuda.so.1 -Wl$(,)-z$(,)defs -o $@ $^ -pthread)
$(STANDIN)/libcudart_static.a: $(STANDIN)/cuda/runtime.o
	$(call run,AR,rm -f $@ && ar rcs $@ $<)
$(STANDIN)/libcudart.so.13: tests/standin/cuda/runtime.cpp
	@mkdir -p $(@D)
	$(call run,LINK,$(CXX) $(filter-out -fvisibility=hidden,$(standin_flags)) -shared -Wl$(,)-soname$(,)libcudart.so.13 -o $@ $< -ldl && ln -sf libcudart.so.13 $(@D)/libcudart.so)
NCCL_OBJECTS := $(addprefix $(STANDIN)/nccl/,nccl.o mesh.o profiler.o)
$(STANDIN)/libnccl.so.2: $(NCCL_OBJECTS)
	$(call run,LINK,$(CXX) -shared -Wl$(,)-soname$(,)libnccl.so.2 -Wl$(,)-z$(,)defs -Wl$(,)-rpath$(,)'$$ORIGIN' -o $@ $^ -lgloo -ldl -pthread && ln -sf libnccl.so.2 $(@D)/libnccl.so)
# An NCCL from before ncclCommSplit.
$(STANDIN)/old/libnccl.so.2: $(NCCL_OBJECTS) tests/standin/nccl/old.map
	@mkdir -p $(@D)
	$(call run,LINK,$(CXX) -shared -Wl$(,)-soname$(,)libnccl.so.2 -Wl$(,)--version-script=tests/standin/nccl/old.map -Wl$(,)-rpath$(,)'$$ORIGIN/..' -o $@ $(filter %.o,$^) -lgloo -ldl -pthread)
nccl_flags = -std=c++17 -g -O1 -Wall -Wextra -Werror -I. -Iinclude -isystem $(CUDA_INCLUDE) -L$(STANDIN) -Wl$(,)-rpath$(,)'$$ORIGIN/../../standin'
$(BUILD)/programs/nccl/%: tests/programs/nccl/%.cpp tests/programs/nccl/rank.h | $(STANDINS)
	@mkdir -p $(@D)
	$(call run,NCCL,$(CXX) $(nccl_flags) -o $@ $< -lnccl $(STANDIN)/libcudart_static.a -ldl -pthread)
# The same with NCCL inside, where no symbol leads to it.
$(BUILD)/programs/nccl/faults_static: tests/programs/nccl/faults.cpp tests/programs/nccl/rank.h $(NCCL_OBJECTS) | $(STANDINS)
	@mkdir -p $(@D)
	$(call run,NCCL,$(CXX) $(nccl_flags) -o $@ $< $(NCCL_OBJECTS) $(STANDIN)/libcudart_static.a -lgloo -ldl -pthread)
# One program, on every route to the driver: the runtime in it or shared, per-thread default streams, NVIDIA's own runtime
# where the toolkit is there (up to where it wants a real driver).
HYBRIDS := $(foreach mpi,$(MPIS),$(BUILD)/programs/$(mpi)/hybrid)
CUDA_PROGRAMS := $(addprefix $(BUILD)/programs/cuda/,memory_static memory_per_thread memory_shared driver pool probe toolkit \
                   $(if $(wildcard $(CUDA_HOME)/lib64/libcudart_static.a),real_static real_shared))
$(BUILD)/programs/cuda/memory_static: tests/programs/cuda/memory.cpp | $(STANDINS)
	@mkdir -p $(@D)
	$(call run,CUDA,$(CXX) $(nccl_flags) -o $@ $< $(STANDIN)/libcudart_static.a -ldl)
$(BUILD)/programs/cuda/memory_per_thread: tests/programs/cuda/memory.cpp | $(STANDINS)
	@mkdir -p $(@D)
	$(call run,CUDA,$(CXX) $(nccl_flags) -DCUDA_API_PER_THREAD_DEFAULT_STREAM -o $@ $< $(STANDIN)/libcudart_static.a -ldl)
$(BUILD)/programs/cuda/memory_shared: tests/programs/cuda/memory.cpp | $(STANDINS)
	@mkdir -p $(@D)
	$(call run,CUDA,$(CXX) $(nccl_flags) -o $@ $< -lcudart)
$(BUILD)/programs/cuda/driver $(BUILD)/programs/cuda/pool: $(BUILD)/programs/cuda/%: tests/programs/cuda/%.cpp | $(STANDINS)
	@mkdir -p $(@D)
	$(call run,CUDA,$(CXX) $(nccl_flags) -o $@ $< -lcuda -ldl)
$(BUILD)/programs/cuda/probe $(BUILD)/programs/cuda/toolkit: $(BUILD)/programs/cuda/%: tests/programs/cuda/%.c
	@mkdir -p $(@D)
	$(call run,CUDA,gcc -g -O1 -Wall -Wextra -Werror -o $@ $< -ldl)
$(BUILD)/programs/cuda/real_static: tests/programs/cuda/memory.cpp | $(STANDINS)
	@mkdir -p $(@D)
	$(call run,CUDA,$(CXX) $(nccl_flags) -o $@ $< $(CUDA_HOME)/lib64/libcudart_static.a -ldl -lrt -pthread)
$(BUILD)/programs/cuda/real_shared: tests/programs/cuda/memory.cpp | $(STANDINS)
	@mkdir -p $(@D)
	$(call run,CUDA,$(CXX) -std=c++17 -g -O1 -isystem $(CUDA_INCLUDE) -Wl$(,)-rpath$(,)$(CUDA_HOME)/lib64 -o $@ $< -L$(CUDA_HOME)/lib64 -lcudart)
$(BUILD)/examples/nccl/%: examples/%.cu | $(STANDINS)
	@mkdir -p $(@D)
	$(call run,NCCL,$(CXX) -x c++ $(nccl_flags) -O2 -o $@ $< -x none -lnccl $(STANDIN)/libcudart_static.a -ldl -pthread)

NCCL_INCLUDE = $(firstword $(dir $(wildcard $(CUDA_INCLUDE)/nccl.h $(NCCL_HOME)/include/nccl.h $(BUILD)/headers/nccl.h)))
$(BUILD)/tests/drift.nccl: tests/drift/nccl.cpp tests/drift/nccl_names.sh tests/drift/driver.sh shim/signature/*.def shim/signature/*.h
	@mkdir -p $(@D)
	$(call run,DRIFT,$(CXX) -std=c++20 -fsyntax-only -Ishim -Iinclude -I$(NCCL_INCLUDE) -I$(CUDA_INCLUDE) tests/drift/nccl.cpp && \
	  tests/drift/nccl_names.sh $(NCCL_INCLUDE)/nccl.h shim/signature/functions.def && \
	  tests/drift/driver.sh $(CUDA_INCLUDE)/cudaTypedefs.h shim/signature/driver.def && touch $@)
check-headers: ## The tables against the headers of other NCCL versions (downloads them)
	@tests/drift/nccl_versions.sh $(BUILD) $(CUDA_INCLUDE)
check-flight-recorder: tests ## What inspect writes for PyTorch's flight recorder analyzer, read by that (downloads it)
	@tests/drift/flight_recorder.sh $(BUILD)

$(BUILD)/suites/unit: $(UNIT) $(CORE) $(addprefix $(BUILD)/shim/lifecycle/,stacks.o unwind.o) $(filter-out %/main.o,$(LAUNCHER))
	@mkdir -p $(@D)
	$(call run,LINK,$(CXX) $(LDFLAGS) -o $@ $^ $(LAUNCHER_LIBRARIES) -lgtest -lgtest_main $(LIBRARIES))
$(BUILD)/suites/jobs: $(JOBS)
	@mkdir -p $(@D)
	$(call run,LINK,$(CXX) $(LDFLAGS) -o $@ $^ -lgtest -lgtest_main -pthread)

# The victims of sanitized builds stay plain programs; only our own code is instrumented.
tests: all $(DRIFT) $(STANDINS) $(PROGRAMS) $(PLUGIN) $(EXAMPLES) $(NCCL_PROGRAMS) $(CUDA_PROGRAMS) $(HYBRIDS) $(NCCL_EXAMPLES) $(BUILD)/suites/unit $(BUILD)/suites/jobs

deps_all = tests/deps.sh && CUDA_HOME='$(CUDA_HOME)' NCCL_HOME='$(NCCL_HOME)' tests/deps.sh headers
check: ## Install what is missing, build, run all tests
	@$(deps_all)
	@$(MAKE) --no-print-directory -j$$(nproc) tests
	@tests/run.sh $(BUILD) unit jobs
check-unit: ## Only the unit tests
	@$(MAKE) --no-print-directory -j$$(nproc) $(BUILD)/suites/unit
	@tests/run.sh $(BUILD) unit
check-random: ## 10,000 random correct programs and as many with a fault, on each MPI (N=10000)
	@$(MAKE) --no-print-directory -j$$(nproc) tests
	@ACCEL_TEST_PROGRAMS=$(or $(N),10000) tests/run.sh $(BUILD) jobs --gtest_filter='*RandomPrograms*'
check-apps: ## Real programs from the distribution, with and without the preload
	@$(deps_all)
	@tests/deps.sh apps
	@$(MAKE) --no-print-directory -j$$(nproc) all $(BUILD)/programs/nccl/trainer $(BUILD)/programs/nccl/faults
	@tests/apps.sh $(BUILD)

demo: ## Install what is missing, build, show a mismatch of a real MPI job
	@tests/deps.sh
	@$(MAKE) --no-print-directory -j$$(nproc) all $(BUILD)/examples/openmpi/gradient_step
	@tests/demo.sh $(BUILD)

demo-nccl: ## The same of a data-parallel NCCL trainer, on stand-ins for GPUs: mismatch, early exit, out of memory
	@$(deps_all)
	@$(MAKE) --no-print-directory -j$$(nproc) all $(BUILD)/examples/nccl/data_parallel
	@tests/demo_nccl.sh $(BUILD)

bench: ## Cost of a call and latency with and without the library, as ratios
	@tests/deps.sh
	@$(MAKE) --no-print-directory -j$$(nproc) all $(BUILD)/bench/record $(BUILD)/bench/synthetic_run $(BUILD)/bench/calls $(BUILD)/programs/nccl/trainer $(foreach mpi,$(MPIS),$(BUILD)/bench/$(mpi)/latency $(BUILD)/bench/$(mpi)/extra_allreduce.so $(BUILD)/programs/$(mpi)/faults)
	@tests/bench/run.py $(BUILD)
$(BUILD)/bench/nothing/libnccl.so.2: tests/bench/nothing.cpp
	@mkdir -p $(@D)
	$(call run,LINK,$(CXX) -O2 -std=c++17 -shared -fPIC -DNOTHING_NCCL -Wl$(,)-soname$(,)libnccl.so.2 -o $@ $<)
$(BUILD)/bench/nothing/libcuda.so.1: tests/bench/nothing.cpp
	@mkdir -p $(@D)
	$(call run,LINK,$(CXX) -O2 -std=c++17 -shared -fPIC -Wl$(,)-soname$(,)libcuda.so.1 -o $@ $<)
$(BUILD)/bench/calls: tests/bench/calls.cpp $(BUILD)/bench/nothing/libnccl.so.2 $(BUILD)/bench/nothing/libcuda.so.1
	@mkdir -p $(@D)
	$(call run,LINK,$(CXX) -O2 -std=c++17 -Wl$(,)-rpath$(,)'$$ORIGIN/nothing' -o $@ $^ -ldl)
$(BUILD)/bench/record: $(BUILD)/tests/bench/record.o $(CORE)
	@mkdir -p $(@D)
	$(call run,LINK,$(CXX) $(LDFLAGS) -o $@ $^ -lbenchmark $(LIBRARIES))
$(BUILD)/bench/synthetic_run: $(BUILD)/tests/bench/synthetic_run.o $(CORE)
	@mkdir -p $(@D)
	$(call run,LINK,$(CXX) $(LDFLAGS) -o $@ $^ $(LIBRARIES))

bench-scale: ## What a job of 1,024 to 100,000 ranks costs accelrun when nothing is wrong: simulated leaders, real code
	@tests/deps.sh
	@$(MAKE) --no-print-directory -j$$(nproc) $(BUILD)/bench/scale
	@for ranks in 1024 16384 100000; do $(BUILD)/bench/scale $$ranks || exit; done
$(BUILD)/bench/scale: $(BUILD)/tests/bench/scale.o $(CORE)
	@mkdir -p $(@D)
	$(call run,LINK,$(CXX) $(LDFLAGS) -o $@ $^ $(LIBRARIES))

FUZZ_SECONDS ?= 60
FUZZED := reader nodes
fuzz: ## Fuzz the reader of foreign recorder files and what comes from other nodes (FUZZ_SECONDS=60 each)
	@tests/deps.sh
	@$(MAKE) --no-print-directory -j$$(nproc) BUILD=build-fuzz CXX=clang++ 'CXXFLAGS=-O1 -g -fsanitize=fuzzer-no-link,address,undefined' 'LDFLAGS=-fsanitize=fuzzer,address,undefined' $(FUZZED:%=build-fuzz/fuzz/%)
	@for target in $(FUZZED); do mkdir -p build-fuzz/corpus-$$target && ASAN_OPTIONS=detect_leaks=0 build-fuzz/fuzz/$$target -artifact_prefix=build-fuzz/$$target- -max_total_time=$(FUZZ_SECONDS) -max_len=65536 build-fuzz/corpus-$$target || exit; done
$(BUILD)/fuzz/%: $(BUILD)/tests/fuzz/%.o $(CORE)
	@mkdir -p $(@D)
	$(call run,LINK,$(CXX) $(LDFLAGS) -o $@ $^ $(LIBRARIES))

SOURCES = $(shell git ls-files '*.cpp' '*.h' 2>/dev/null)
lint: ## clang-format and clang-tidy
	@tests/deps.sh
	@clang-format --dry-run --Werror $(SOURCES)
	@printf '%s\n' $(filter shim/%.cpp launcher/%.cpp,$(SOURCES)) | xargs -P $$(nproc) -n 3 sh -c \
	  'clang-tidy --quiet "$$@" -- -std=c++20 -DFMT_HEADER_ONLY -Iinclude -Ishim -I. 2>/dev/null' lint

-include $(UNIT:.o=.d) $(JOBS:.o=.d) $(BUILD)/tests/bench/record.d $(BUILD)/tests/bench/synthetic_run.d $(BUILD)/tests/bench/scale.d $(FUZZED:%=$(BUILD)/tests/fuzz/%.d)
.PHONY: demo-nccl bench-scale check-headers check-flight-recorder tests check-unit check-random
