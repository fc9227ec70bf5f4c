// Which process holds which rank of a group.
#ifndef PCCL_FFI_TEAM_H_
#define PCCL_FFI_TEAM_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

namespace pccl {

struct Team {
  std::vector<int64_t> process_of;   // by schedule rank
  std::vector<int64_t> local_index;  // by schedule rank: its number among those of its process
  std::vector<int64_t> mine;         // ranks of this process, ascending
  std::vector<int64_t> processes;    // ascending, each once
  int64_t width = 1;                 // most ranks that any process has

  bool one_process() const { return processes.size() == 1; }
  bool IsMine(int64_t rank, int64_t process) const {
    return process_of[static_cast<size_t>(rank)] == process;
  }

  Team() = default;
  Team(std::vector<int64_t> processes_by_rank, int64_t me)
      : process_of(std::move(processes_by_rank)) {
    std::map<int64_t, int64_t> counts;
    for (size_t rank = 0; rank < process_of.size(); ++rank) {
      const int64_t process = process_of[rank];
      local_index.push_back(counts[process]++);
      width = std::max(width, counts[process]);
      if (process == me) mine.push_back(static_cast<int64_t>(rank));
    }
    for (const auto& [process, count] : counts) processes.push_back(process);
  }
};

}  // namespace pccl

#endif  // PCCL_FFI_TEAM_H_
