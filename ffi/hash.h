// Hashes that every process computes alike.
#ifndef PCCL_FFI_HASH_H_
#define PCCL_FFI_HASH_H_

#include <cstdint>
#include <string>
#include <vector>

namespace pccl {

// FNV-1a.
inline uint64_t HashOf(const std::string& text) {
  uint64_t hash = 1469598103934665603u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
  return hash;
}

// The finaliser of splitmix64: one bit of either argument changes about half of the result.
inline uint64_t Mix(uint64_t hash, uint64_t value) {
  uint64_t z = hash + 0x9e3779b97f4a7c15u + value * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  z ^= z >> 31;
  return z == 0 ? 1 : z;  // 0 means "no key"
}

inline uint64_t HashOf(const std::vector<int64_t>& values, uint64_t hash) {
  hash = Mix(hash, values.size());
  for (const int64_t value : values) hash = Mix(hash, static_cast<uint64_t>(value));
  return hash;
}

}  // namespace pccl

#endif  // PCCL_FFI_HASH_H_
