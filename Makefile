# make help lists the targets.
#
#   SANITIZE=address|undefined|thread   instrumented build in build-SANITIZE
#   CXX=clang++ BUILD=build-clang       another compiler
#   V=1                                 show the commands

SANITIZE  ?=
BUILD     ?= build$(if $(SANITIZE),-$(SANITIZE))
PREFIX    ?= /usr/local
DESTDIR   ?=
CUDA_HOME ?= $(firstword $(wildcard /usr/local/cuda /opt/cuda))
NCCL_HOME ?= /usr
D3        ?= $(firstword $(wildcard /usr/share/nodejs/d3/dist/d3.min.js $(BUILD)/headers/d3.min.js build/headers/d3.min.js))
VERSION   := $(shell sed -n 's/^.define ACCEL_VERSION "\(.*\)"/\1/p' include/accel/accel.h)

CXX      ?= g++
CXXFLAGS ?= -O2 -g
override CXXFLAGS += -std=c++20 -fPIC -fvisibility=hidden -fno-omit-frame-pointer -Wall -Wextra -Werror \
                     -MMD -MP -DFMT_HEADER_ONLY -Iinclude -Ishim -I. \
                     $(if $(SANITIZE),-fsanitize=$(SANITIZE) -fno-sanitize-recover=all) \
                     $(if $(filter thread,$(SANITIZE)),$(if $(findstring clang,$(CXX)),,-Wno-tsan))
override LDFLAGS += $(if $(SANITIZE),-fsanitize=$(SANITIZE))
# Programs that we are preloaded into bring their own, older libstdc++: ours is inside, and hidden.
STATIC_RUNTIME = $(if $(SANITIZE),,-static-libstdc++ -static-libgcc -Wl$(,)--exclude-libs$(,)ALL)

objects = $(patsubst %.cpp,$(BUILD)/%.o,$(wildcard $(addsuffix /*.cpp,$(1))))

# The pipeline, each room on top of those before it; shim/README.md says who may include whom.
CORE     := $(call objects,$(addprefix shim/,settings signature record collect timing judge report nodes act))
SHIM     := $(CORE) $(call objects,$(addprefix shim/,lifecycle interpose interpose/loader interpose/api interpose/cuda interpose/mpi interpose/nccl interpose/process))
# Static: accelrun runs where they are not installed.
LIBRARIES := -l:libsodium.a -ldl -pthread
LAUNCHER_LIBRARIES := -l:libyaml-cpp.a -l:libelf.a -l:libz.a
LAUNCHER := $(call objects,launcher launcher/batch launcher/doctor launcher/inspect)

all: $(BUILD)/libaccel.so $(BUILD)/libaccel-audit.so $(BUILD)/accelrun ## Build the library and the launcher (default)

$(BUILD)/libaccel.so: $(SHIM) shim/libaccel.map
	$(call run,LINK,$(CXX) -shared $(LDFLAGS) $(STATIC_RUNTIME) -Wl$(,)--version-script=shim/libaccel.map \
	  -Wl$(,)-soname$(,)libaccel.so -Wl$(,)-z$(,)defs -Wl$(,)-z$(,)nodelete -o $@ $(SHIM) $(LIBRARIES))
# Lives in a namespace of its own, with no library but a C library of its own: not sanitized, no C++ runtime.
$(BUILD)/libaccel-audit.so: shim/audit/audit.cpp
	@mkdir -p $(@D)
	$(call run,LINK,$(CXX) -std=c++20 -O2 -g -fPIC -shared -fvisibility=hidden -fno-exceptions -fno-rtti -Wall -Wextra -Werror -nodefaultlibs -o $@ $< -lc)
$(BUILD)/accelrun: $(LAUNCHER) $(CORE)
	$(call run,LINK,$(CXX) $(LDFLAGS) -o $@ $^ $(LAUNCHER_LIBRARIES) $(LIBRARIES))
$(BUILD)/launcher/inspect/page.o: launcher/inspect/page.html
$(BUILD)/launcher/inspect/page.o: override CXXFLAGS += -DACCEL_D3='"$(or $(D3),$(error d3.min.js of D3 5 is missing: install node-d3, or make D3=/path/to/d3.min.js))"'
$(BUILD)/%.o: %.cpp
	@mkdir -p $(@D)
	$(call run,CXX,$(CXX) $(CXXFLAGS) -c -o $@ $<)

include tests/tests.mk

deps: ## Install what building and testing needs (apt or dnf), and CUDA and NCCL headers if there are none
	@$(deps_all)

clean: ## Remove the build directory
	rm -rf $(BUILD)
help: ## Print this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | column -t -s '	'

install: all ## Install below DESTDIR/PREFIX
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/lib/pkgconfig $(DESTDIR)$(PREFIX)/include/accel
	install -m 755 $(BUILD)/accelrun $(DESTDIR)$(PREFIX)/bin/
	install -m 755 $(BUILD)/libaccel.so $(BUILD)/libaccel-audit.so $(DESTDIR)$(PREFIX)/lib/
	install -m 644 include/accel/accel.h include/accel/accel.f90 include/accel/libaccel.py $(DESTDIR)$(PREFIX)/include/accel/
	printf 'prefix=%s\nlibdir=$${prefix}/lib\nincludedir=$${prefix}/include\n\nName: accel\nDescription: errors instead of hangs for distributed jobs\nVersion: %s\nCflags: -I$${includedir}\n' \
	  '$(PREFIX)' '$(VERSION)' > $(DESTDIR)$(PREFIX)/lib/pkgconfig/accel.pc

, := ,
run = $(if $(V),$(2),@printf '  %-5s %s\n' $(1) '$(@:$(BUILD)/%=%)'; $(2))

.DELETE_ON_ERROR:
.SUFFIXES:
.SECONDARY:
.PHONY: all demo check check-apps bench fuzz lint install deps clean help
-include $(SHIM:.o=.d) $(LAUNCHER:.o=.d)
