// Ids of 8 B with positions of 4 B, sorted by as many bits as the rows of a rank have, and runs of equal ids found:
// what FBGEMM's transpose_embedding_input does in the backward pass. Prints a table.
#include <cub/cub.cuh>
#include <cstdint>
#include <cstdio>
#include <algorithm>
#include <vector>

__global__ void draw(int64_t* ids, int32_t* places, int64_t count, uint64_t rows) {
  int64_t at = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
  if (at >= count) return;
  uint64_t mixed = (at + 1) * 0x9E3779B97F4A7C15ull;
  mixed ^= mixed >> 31; mixed *= 0xBF58476D1CE4E5B9ull; mixed ^= mixed >> 29;
  ids[at] = int64_t(mixed % rows);
  places[at] = int32_t(at);
}

int main() {
  printf("ids,row_bits,sort_s,runs_s\n");
  for (int64_t count : {1ll << 16, 1ll << 18, 1ll << 20, 1ll << 22, 1ll << 23, 1ll << 24, 1ll << 25, 1ll << 26}) {
    int64_t *ids, *sorted, *distinct; int32_t *places, *ordered, *lengths, *runs; void* scratch; 
    cudaMalloc(&ids, 8 * count); cudaMalloc(&sorted, 8 * count); cudaMalloc(&distinct, 8 * count);
    cudaMalloc(&places, 4 * count); cudaMalloc(&ordered, 4 * count); cudaMalloc(&lengths, 4 * count); cudaMalloc(&runs, 4);
    size_t one = 0, two = 0;
    cub::DeviceRadixSort::SortPairs(nullptr, one, ids, sorted, places, ordered, count, 0, 32);
    cub::DeviceRunLengthEncode::Encode(nullptr, two, sorted, distinct, lengths, runs, count);
    size_t room = std::max(one, two); cudaMalloc(&scratch, room);
    for (int bits : {16, 20, 24, 28, 32}) {
      draw<<<(count + 255) / 256, 256>>>(ids, places, count, 1ull << bits);
      cudaEvent_t begin, middle, end; cudaEventCreate(&begin); cudaEventCreate(&middle); cudaEventCreate(&end);
      float sort_ms = 1e9, runs_ms = 1e9;
      for (int run = 0; run < 7; ++run) {
        cudaEventRecord(begin);
        size_t own = room; cub::DeviceRadixSort::SortPairs(scratch, own, ids, sorted, places, ordered, count, 0, bits);
        cudaEventRecord(middle);
        own = room; cub::DeviceRunLengthEncode::Encode(scratch, own, sorted, distinct, lengths, runs, count);
        cudaEventRecord(end); cudaEventSynchronize(end);
        float a, b; cudaEventElapsedTime(&a, begin, middle); cudaEventElapsedTime(&b, middle, end);
        if (run) { sort_ms = std::min(sort_ms, a); runs_ms = std::min(runs_ms, b); }
      }
      if (cudaGetLastError() != cudaSuccess) { fprintf(stderr, "failed\n"); return 1; }
      printf("%lld,%d,%.6g,%.6g\n", (long long)count, bits, sort_ms * 1e-3, runs_ms * 1e-3);
    }
    for (void* each : {(void*)ids, (void*)sorted, (void*)distinct, (void*)places, (void*)ordered, (void*)lengths, (void*)runs, scratch}) cudaFree(each);
  }
}
