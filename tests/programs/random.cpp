// Random MPI programs, correct by construction or with one fault.
//
//   random SEED COUNT               COUNT correct programs, seeds from SEED on, one after another
//   random SEED 1 FAULT PLANFILE    the program of that seed with one fault of kind FAULT; PLANFILE gets one
//   line that
//                                   says what was done: "victim operation group-size"
//
// All ranks draw the same numbers. A "family" is a communicator that each rank has a part of: the world, a
// duplicate, a split. In a step every part of a family makes one collective call, each part with its own
// random arguments.
#include <mpi.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15u + 0x1234567) {}
  std::uint64_t next() {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return state_ * 0x2545f4914f6cdd1du >> 11;
  }
  int below(int bound) { return static_cast<int>(next() % static_cast<std::uint64_t>(bound)); }
  bool chance(int percent) { return below(100) < percent; }

 private:
  std::uint64_t state_;
};

struct Family {
  MPI_Comm communicator = MPI_COMM_NULL;
  std::vector<int> colour;  ///< of each world rank
};

enum Kind {
  kBarrier,
  kBcast,
  kReduce,
  kAllreduce,
  kScan,
  kExscan,
  kReduceScatterBlock,
  kReduceScatter,
  kGather,
  kGatherv,
  kScatter,
  kScatterv,
  kAllgather,
  kAllgatherv,
  kAlltoall,
  kAlltoallv,
  kAlltoallw,
  kKinds
};
const char* const kNames[] = {
    "Barrier",        "Bcast",     "Reduce",   "Allreduce", "Scan",     "Exscan",    "Reduce_scatter_block",
    "Reduce_scatter", "Gather",    "Gatherv",  "Scatter",   "Scatterv", "Allgather", "Allgatherv",
    "Alltoall",       "Alltoallv", "Alltoallw"};

struct Step {
  Kind kind;
  int count;
  MPI_Datatype type;
  MPI_Op op;
  int root;
  bool in_place;
  bool grouped;  ///< odd ranks give the same data as fewer elements of a contiguous type
  std::vector<int> counts;
};

int world_rank, world_size;
std::vector<char> send_memory(1 << 20), recv_memory(1 << 20);

bool rooted(Kind kind) { return kind == kBcast || kind == kReduce || (kind >= kGather && kind <= kScatterv); }
bool reduces(Kind kind) { return kind >= kReduce && kind <= kReduceScatter; }
bool vectors(Kind kind) {
  return kind == kReduceScatter || kind == kGatherv || kind == kScatterv || kind == kAllgatherv ||
         kind >= kAlltoallv;
}

Step draw(Random& random, int size) {
  static const MPI_Datatype types[] = {MPI_INT, MPI_DOUBLE, MPI_FLOAT, MPI_LONG, MPI_UNSIGNED, MPI_SHORT};
  static const MPI_Op ops[] = {MPI_SUM, MPI_MAX, MPI_MIN, MPI_PROD};
  Step step;
  step.kind = static_cast<Kind>(random.below(kKinds));
  step.count = random.chance(15) ? 0 : 1 + random.below(40);
  step.type = types[random.below(6)];
  step.op = ops[random.below(4)];
  step.root = random.below(size);
  step.in_place = random.chance(30);
  step.grouped = !reduces(step.kind) && !vectors(step.kind) && step.count % 2 == 0 && random.chance(30);
  for (int i = 0; i < size * size; ++i) step.counts.push_back(random.chance(25) ? 0 : random.below(9));
  return step;
}

/// `count` elements of the step's type, or half as many pairs of it.
struct Shape {
  int count;
  MPI_Datatype type;
};

void perform(const Step& step, MPI_Comm communicator) {
  int rank, size;
  MPI_Comm_rank(communicator, &rank);
  MPI_Comm_size(communicator, &size);
  const bool is_root = rank == step.root;
  void* const send = send_memory.data();
  void* const recv = recv_memory.data();
  MPI_Datatype pair = MPI_DATATYPE_NULL;
  Shape shape{step.count, step.type};
  if (step.grouped && rank % 2 == 1) {
    MPI_Type_contiguous(2, step.type, &pair);
    MPI_Type_commit(&pair);
    shape = {step.count / 2, pair};
  }
  // Not significant where it is not the root's turn: anything may stand there.
  const int junk = 123456;
  std::vector<int> places;
  for (int i = 0; i < size; ++i) places.push_back(16 * i);
  const std::vector<int>& all = step.counts;
  std::vector<int> to(all.begin() + rank * size, all.begin() + (rank + 1) * size);  // what I send to each
  std::vector<int> from;
  for (int i = 0; i < size; ++i) from.push_back(all[static_cast<std::size_t>(i * size + rank)]);
  const std::vector<int> same(all.begin(), all.begin() + size);
  const void* in_place_send = step.in_place ? MPI_IN_PLACE : send;

  switch (step.kind) {
    case kBarrier:
      MPI_Barrier(communicator);
      break;
    case kBcast:
      MPI_Bcast(send, shape.count, shape.type, step.root, communicator);
      break;
    case kReduce:
      MPI_Reduce(is_root ? in_place_send : send, is_root ? recv : nullptr, step.count, step.type, step.op,
                 step.root, communicator);
      break;
    case kAllreduce:
      MPI_Allreduce(in_place_send, recv, step.count, step.type, step.op, communicator);
      break;
    case kScan:
      MPI_Scan(in_place_send, recv, step.count, step.type, step.op, communicator);
      break;
    case kExscan:
      MPI_Exscan(in_place_send, recv, step.count, step.type, step.op, communicator);
      break;
    case kReduceScatterBlock:
      MPI_Reduce_scatter_block(in_place_send, recv, step.count, step.type, step.op, communicator);
      break;
    case kReduceScatter:
      MPI_Reduce_scatter(in_place_send, recv, same.data(), step.type, step.op, communicator);
      break;
    case kGather:
      MPI_Gather(is_root ? in_place_send : send, shape.count, shape.type, is_root ? recv : nullptr,
                 is_root ? shape.count : junk, is_root ? shape.type : MPI_BYTE, step.root, communicator);
      break;
    case kGatherv:
      MPI_Gatherv(is_root ? in_place_send : send, same[static_cast<std::size_t>(rank)], step.type,
                  is_root ? recv : nullptr, is_root ? same.data() : nullptr,
                  is_root ? places.data() : nullptr, is_root ? step.type : MPI_BYTE, step.root, communicator);
      break;
    case kScatter:
      MPI_Scatter(is_root ? send : nullptr, is_root ? shape.count : junk, is_root ? shape.type : MPI_BYTE,
                  is_root && step.in_place ? MPI_IN_PLACE : recv, shape.count, shape.type, step.root,
                  communicator);
      break;
    case kScatterv:
      MPI_Scatterv(is_root ? send : nullptr, is_root ? same.data() : nullptr,
                   is_root ? places.data() : nullptr, is_root ? step.type : MPI_BYTE,
                   is_root && step.in_place ? MPI_IN_PLACE : recv, same[static_cast<std::size_t>(rank)],
                   step.type, step.root, communicator);
      break;
    case kAllgather:
      MPI_Allgather(in_place_send, shape.count, shape.type, recv, shape.count, shape.type, communicator);
      break;
    case kAllgatherv:
      MPI_Allgatherv(in_place_send, same[static_cast<std::size_t>(rank)], step.type, recv, same.data(),
                     places.data(), step.type, communicator);
      break;
    case kAlltoall:
      MPI_Alltoall(send, shape.count, shape.type, recv, shape.count, shape.type, communicator);
      break;
    case kAlltoallv:
      MPI_Alltoallv(send, to.data(), places.data(), step.type, recv, from.data(), places.data(), step.type,
                    communicator);
      break;
    case kAlltoallw: {
      std::vector<MPI_Datatype> types(static_cast<std::size_t>(size), step.type);
      for (int& place : places) place *= 8;
      MPI_Alltoallw(send, to.data(), places.data(), types.data(), recv, from.data(), places.data(),
                    types.data(), communicator);
      break;
    }
    case kKinds:
      break;
  }
  if (pair != MPI_DATATYPE_NULL) MPI_Type_free(&pair);
}

struct Fault {
  std::string kind;  ///< empty: none
  const char* plan = nullptr;
};

/// Whether a step can carry the fault, for certain and in a way that a majority shows who erred.
bool fits(const std::string& fault, const Step& step, int size) {
  if (size < 3) return false;
  if (fault == "count")
    return step.kind != kBarrier && !vectors(step.kind) && step.count > 0 && !step.grouped;
  if (fault == "type") return step.kind != kBarrier && !vectors(step.kind) && step.count > 0 && !step.grouped;
  if (fault == "op") return reduces(step.kind);
  if (fault == "root") return rooted(step.kind);
  if (fault == "vector") return step.kind == kReduceScatter || step.kind == kAllgatherv;
  return true;  // kind, skip, exit
}

/// The step as the victim makes it.
Step err(const std::string& fault, Step step, int size) {
  if (fault == "count") step.count += 1;
  if (fault == "type") step.type = step.type == MPI_INT ? MPI_DOUBLE : MPI_INT;
  if (fault == "op") step.op = step.op == MPI_SUM ? MPI_MAX : MPI_SUM;
  if (fault == "root") step.root = (step.root + 1) % size;
  if (fault == "kind") step.kind = step.kind == kBarrier ? kAllreduce : kBarrier;
  if (fault == "vector") step.counts[0] += 1;
  return step;
}

void run_program(std::uint64_t seed, const Fault& fault) {
  Random random(seed);
  std::vector<Family> families{{MPI_COMM_WORLD, std::vector<int>(static_cast<std::size_t>(world_size), 0)}};
  for (int i = random.below(3); i > 0; --i) {
    Family family;
    if (random.chance(30)) {
      MPI_Comm_dup(MPI_COMM_WORLD, &family.communicator);
      family.colour = families[0].colour;
    } else {
      const int parts = 1 + random.below(2);
      const bool reversed = random.chance(50);
      for (int rank = 0; rank < world_size; ++rank) family.colour.push_back(random.below(parts));
      MPI_Comm_split(MPI_COMM_WORLD, family.colour[static_cast<std::size_t>(world_rank)],
                     reversed ? -world_rank : world_rank, &family.communicator);
    }
    families.push_back(family);
  }
  const int steps = 4 + random.below(10);
  const int first_faulty = fault.kind.empty() ? -1 : random.below(steps);
  bool done = false;
  for (int index = 0;; ++index) {
    // A step that fits must come: after the drawn ones only the fault keeps the program going.
    if (index >= steps && (fault.kind.empty() || done)) break;
    Family& family = families[static_cast<std::size_t>(random.below(static_cast<int>(families.size())))];
    const std::uint64_t step_seed = random.next();
    const int chosen = random.below(world_size);
    const int colour = family.colour[static_cast<std::size_t>(world_rank)];
    const auto size_of = [&](int which) {
      int size = 0;
      for (const int other : family.colour) size += other == which ? 1 : 0;
      return size;
    };
    Random own(step_seed + static_cast<std::uint64_t>(colour));
    const Step step = draw(own, size_of(colour));
    if (!done && first_faulty >= 0 && index >= first_faulty) {
      const int victim_colour = family.colour[static_cast<std::size_t>(chosen)];
      Random theirs(step_seed + static_cast<std::uint64_t>(victim_colour));
      const Step original = draw(theirs, size_of(victim_colour));
      if (fits(fault.kind, original, size_of(victim_colour))) {
        done = true;
        if (world_rank == chosen) {
          FILE* plan = std::fopen(fault.plan, "w");
          std::fprintf(plan, "%d %s %d\n", chosen, kNames[original.kind], size_of(victim_colour));
          std::fclose(plan);
          if (fault.kind == "exit") std::exit(0);
          if (fault.kind == "skip") continue;
          perform(err(fault.kind, original, size_of(victim_colour)), family.communicator);
          continue;
        }
      }
    }
    perform(step, family.communicator);
  }
  for (Family& family : families) MPI_Barrier(family.communicator);
  for (std::size_t i = 1; i < families.size(); ++i) MPI_Comm_free(&families[i].communicator);
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
  MPI_Comm_size(MPI_COMM_WORLD, &world_size);
  const std::uint64_t seed = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1;
  const int count = argc > 2 ? std::atoi(argv[2]) : 1;
  const Fault fault = argc > 4 ? Fault{argv[3], argv[4]} : Fault{};
  for (int i = 0; i < count; ++i) run_program(seed + static_cast<std::uint64_t>(i), fault);
  if (world_rank == 0) std::printf("%d programs\n", count);
  MPI_Finalize();
  return 0;
}
