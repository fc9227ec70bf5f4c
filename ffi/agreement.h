// How processes make sure that they are in the same collective, and agree on its message tags.
#ifndef PCCL_FFI_AGREEMENT_H_
#define PCCL_FFI_AGREEMENT_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "ffi/control.h"
#include "ffi/team.h"
#include "ffi/world.h"

namespace pccl {

// Do all processes of the team mean the same collective? Not thread safe.
class Agreement {
 public:
  virtual ~Agreement() = default;
  // Does what can be done now; returns whether anything was.
  virtual bool Advance() = 0;
  virtual bool complete() const = 0;
  // Messages may use the tags [first_tag, first_tag + width * width), on all processes of the team.
  virtual int first_tag() const = 0;
  // The processes that are waited for.
  virtual std::vector<int64_t> Awaited() const = 0;
  const std::string& error() const { return error_; }

 protected:
  std::string error_;
};

// On a call site's first execution, with the question which tags its messages use: every process
// sends its signature to the first one, which compares and answers.
class Handshake : public Agreement {
 public:
  // `signature` must be equal on all processes; `description` explains it to people.
  Handshake(const World& world, const Team& team, uint64_t key, uint64_t signature,
            std::string description);

  bool Advance() override;
  bool complete() const override { return tag_ >= 0; }
  int first_tag() const override { return tag_; }
  // All that have not come; of all but the first process, that one.
  std::vector<int64_t> Awaited() const override;

 private:
  bool leads() const { return team_.processes[0] == world_.process; }
  void SayHello();
  bool HearHellos();
  bool HearVerdict();
  void Announce();

  const World& world_;
  const Team& team_;
  const uint64_t key_, signature_;
  const std::string description_;
  bool started_ = false;
  std::map<int64_t, ControlMessage> hellos_;  // by process, of the leader
  int tag_ = -1;
};

// On every execution in an ordered world, where no call site knows which one it meets: each process
// compares with the one before it. So all are equal where nobody finds a difference, for one
// message each, however many there are. `key` is the number of the execution.
class NeighbourCheck : public Agreement {
 public:
  NeighbourCheck(const World& world, const Team& team, uint64_t key, uint64_t signature,
                 std::string description);

  bool Advance() override;
  bool complete() const override { return complete_; }
  int first_tag() const override;
  std::vector<int64_t> Awaited() const override;

 private:
  int64_t Neighbour(size_t steps) const;

  const World& world_;
  const Team& team_;
  const uint64_t key_, signature_;
  const std::string description_;
  bool started_ = false, complete_ = false;
};

}  // namespace pccl

#endif  // PCCL_FFI_AGREEMENT_H_
