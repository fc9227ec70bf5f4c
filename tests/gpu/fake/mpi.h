// An MPI library among threads: a message waits until somebody asks for it.
#ifndef PCCL_TESTS_GPU_FAKE_MPI_H_
#define PCCL_TESTS_GPU_FAKE_MPI_H_

#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <tuple>

#include "ffi/transport/mpi_library.h"
#include "tests/gpu/fake/knobs.h"

namespace fake {

struct MpiMessage {
  const void* data;
  size_t nbytes;
  bool received = false;
};

// What the processes of one test have in common.
struct MpiNetwork {
  std::mutex mutex;
  // By sender, receiver and tag.
  std::map<std::tuple<int, int, int>, std::deque<std::shared_ptr<MpiMessage>>> lines;
};

// Of one process. A send is done when it was received, out of the sender's buffer as it then is.
class Mpi final : public pccl::MpiLibrary {
 public:
  Mpi(MpiNetwork* network, int rank) : network_(network), rank_(rank) {}

  Handle Isend(const void* data, size_t nbytes, int to, int tag, Handle) override {
    std::lock_guard<std::mutex> lock(network_->mutex);
    auto message = std::make_shared<MpiMessage>(MpiMessage{data, nbytes});
    network_->lines[{rank_, to, tag}].push_back(message);
    return Add({message, nullptr, nbytes, {}});
  }
  Handle Irecv(void* data, size_t nbytes, int from, int tag, Handle) override {
    std::lock_guard<std::mutex> lock(network_->mutex);
    return Add({nullptr, data, nbytes, {from, rank_, tag}});
  }
  bool Test(Handle* handle) override {
    std::lock_guard<std::mutex> lock(network_->mutex);
    const Request request = requests_.at(*handle);
    if (request.message != nullptr) {
      if (!request.message->received) return false;
    } else {
      auto& line = network_->lines[request.line];
      // As MPI does, to the earliest receive that was posted for it.
      for (const auto& [other, earlier] : requests_) {
        if (other >= *handle) break;
        if (earlier.message == nullptr && earlier.line == request.line) return false;
      }
      if (line.empty()) return false;
      if (line.front()->nbytes != request.nbytes) throw std::runtime_error("fake MPI: size");
      std::memcpy(request.data, line.front()->data, request.nbytes);
      line.front()->received = true;
      if (Knob("reductions") > 0) ++Knob("receives after a reduction");
      line.pop_front();
    }
    requests_.erase(*handle);
    return true;
  }
  void CancelReceive(Handle* handle) override { requests_.erase(*handle); }
  bool KnowsGpus(bool) const override { return false; }

  bool ReceiveFromAny(void*, size_t, int, Handle) override { return Never(); }
  Handle CreateCommunicator(const std::vector<int>&, int, Handle) override { return Never(); }
  void FreeCommunicator(Handle) override { Never(); }
  Handle Ibarrier(Handle) override { return Never(); }
  Handle Iallgather(const void*, void*, size_t, Handle, Handle) override { return Never(); }
  Handle IreduceScatterBlock(const void*, void*, size_t, Handle, Handle, Handle) override {
    return Never();
  }
  Handle Iallreduce(const void*, void*, size_t, Handle, Handle, Handle) override { return Never(); }
  void BeforeFinalize(Handle, void (*)()) override { Never(); }
  const char* name() const override { return "fake"; }

 private:
  struct Request {
    std::shared_ptr<MpiMessage> message;  // of a send
    void* data;                           // of a receive
    size_t nbytes;
    std::tuple<int, int, int> line;
  };

  Handle Add(const Request& request) {
    requests_[++last_] = request;
    return last_;
  }
  [[noreturn]] static bool Never() { throw std::logic_error("fake MPI: not on a GPU's way"); }

  MpiNetwork* const network_;
  const int rank_;
  std::map<Handle, Request> requests_;
  Handle last_ = 0;
};

}  // namespace fake

#endif  // PCCL_TESTS_GPU_FAKE_MPI_H_
