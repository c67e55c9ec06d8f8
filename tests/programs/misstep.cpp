// misstep KIND: rank 1 makes a mistake in the middle of a step: count, leaves or late. The same in three
// languages. With "scattered" it is late, and the others are each at a depth of their own.
#include <mpi.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

namespace training {

template <class Number>
__attribute__((noinline)) void reduce_gradients(const std::vector<Number>& gradients, int count) {
  std::vector<Number> sum(gradients.size());
  MPI_Allreduce(gradients.data(), sum.data(), count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
}

class Trainer {
 public:
  explicit Trainer(std::string kind) : kind_(std::move(kind)) { MPI_Comm_rank(MPI_COMM_WORLD, &rank_); }

  __attribute__((noinline)) void train_step() {
    const bool odd = rank_ == 1;
    if (odd && kind_ == "leaves") usleep(300'000), std::exit(3);
    if (odd && (kind_ == "late" || kind_ == "scattered")) save_checkpoint();
    if (kind_ == "scattered") descend(rank_);
    reduce_gradients(gradients_, odd && kind_ == "count" ? 2 : 4);
  }

 private:
  __attribute__((noinline)) void descend(int depth) {
    if (depth > 0) descend(depth - 1);
    reduce_gradients(gradients_, 4);
  }

  __attribute__((noinline)) void save_checkpoint() {
    usleep(100'000'000);
    gradients_.clear();
  }

  std::string kind_;
  int rank_ = 0;
  std::vector<double> gradients_ = std::vector<double>(8, 1.0);
};

}  // namespace training

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Barrier(MPI_COMM_WORLD);
  training::Trainer trainer(argc > 1 ? argv[1] : "");
  trainer.train_step();
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Finalize();
  return 0;
}
