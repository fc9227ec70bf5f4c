// Enqueues one collective for one device: the loop that walks a schedule on a stream.
#ifndef PCCL_FFI_GPU_EXECUTION_H_
#define PCCL_FFI_GPU_EXECUTION_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ffi/gpu/communicator.h"
#include "ffi/gpu/plan.h"
#include "ffi/schedule.h"

namespace pccl::gpu {

// Every rank walks the schedule by itself; the stream keeps the order, so a buffer may be written
// as soon as what reads it is enqueued. Of the chunks of its rank-aligned group a rank keeps in
// `at_` where its value lies: in the input until it was reduced or received, then in its place.
class Execution {
 public:
  struct Setup {
    const Schedule* schedule;
    const Plan* plan;
    Shape shape;
    Arithmetic arithmetic;
    uint64_t call = 0;      // as Communicator::Serve wants it
    int64_t rank;           // in the schedule
    Communicator* node;     // may be null where the schedule has no collective within nodes
    Communicator* aligned;  // may be null where nothing goes between nodes
    const char* in;
    char* out;
    char* scratch;
  };

  explicit Execution(const Setup& setup);

  // Throws std::runtime_error where something fails; what was enqueued until then will still run.
  void Enqueue(Stream stream);

 private:
  void Start();
  void RunIntra(Collective collective);
  void RunInter(Collective collective);
  void RunRound(const Phase& phase, int64_t round);
  // Bytes [begin, begin + nbytes) of a message: one operand is copied to the target, two reduced.
  struct Part {
    size_t begin = 0, nbytes = 0;
    char* target = nullptr;
    std::vector<const char*> operands;
  };
  Transfer Outgoing(const Phase& phase, int64_t to, int64_t round);
  // Where a message of these chunks is received: in their places where these follow each other.
  char* Incoming(const Phase& phase, const std::vector<int64_t>& chunks) const;
  std::vector<Part> Parts(const Phase& phase, const std::vector<int64_t>& chunks,
                          const char* message, bool theirs_first) const;
  // Whether the target is where the same bytes of the message that is sent lie, as in a combine. No
  // schedule that was checked writes to where other bytes lie.
  static bool Overlap(const Part& part, const Transfer& sent);
  // What is to be done with bytes [begin, begin + nbytes) of the message.
  void Take(const std::vector<Part>& parts, size_t begin, size_t nbytes, Stream stream) const;
  void Finish();

  void Collect(Communicator* communicator, Collective collective, const std::vector<Job>& jobs);
  void GatherInNode();
  void ScatterInNode();
  bool WithoutShuffle(Collective collective) const;
  void Permute(char* dst, const char* src, int64_t rows, int64_t cols);
  std::vector<int64_t> Chunks(const Phase& phase, int64_t sender, int64_t round) const;
  // Where the value of chunk m goes that is received or reduced next.
  char* Target(int64_t m) const;
  // All chunks of the rank-aligned group one after the other, where they are or in own_.
  char* OwnArray();
  char* At(const Region& region) const { return s_.scratch + region.begin; }

  const Setup s_;
  const Schedule& schedule_;
  const int64_t node_, index_;
  const size_t chunk_;
  const char* in_ = nullptr;  // in regular form
  char* out_ = nullptr;       // likewise
  char* own_ = nullptr;       // see Scratch::own; may be part of the output
  std::vector<char*> at_;     // by node; null where the rank holds nothing yet
  Stream stream_ = nullptr;
};

}  // namespace pccl::gpu

#endif  // PCCL_FFI_GPU_EXECUTION_H_
