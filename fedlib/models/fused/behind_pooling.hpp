// Backward pass of a convolution with nothing but ReLU and 2x2 max-pooling behind it.
//
// Of every four positions at most one has a gradient: the largest of the window, if it is above 0. Which one differs
// between samples, so that here, other than in network.cpp, numbers lie as [sample][row][column][channel], and a vector
// holds neighbouring channels. What a kernel row sees of an image is then one stretch of kernel * channels numbers, and
// both gradients are sums of such stretches, each times the gradient of one position (an `Entry`).

struct Entry {
  int32_t at;  // where the stretch begins
  float slope;
};

// to[0 .. V) += sum over entries of slope * from[at ..], V vectors
template <int V>
static void add_stretches(const Entry* entries, int count, const float* from, float* to) {
  vec a[V];
  for (int j = 0; j < V; j++) a[j] = ((vec*)to)[j];
  for (int k = 0; k < count; k++) {
    const vec slope = all(entries[k].slope), *x = (const vec*)(from + entries[k].at);
#pragma GCC unroll 16
    for (int j = 0; j < V; j++) a[j] = fma(slope, x[j], a[j]);
  }
  for (int j = 0; j < V; j++) ((vec*)to)[j] = a[j];
}

constexpr int LONGEST = 10;  // vectors whose sums stay in registers
typedef void (*Adder)(const Entry*, int, const float*, float*);
template <int... V>
static Adder adder_of(int vectors, std::integer_sequence<int, V...>) {
  static constexpr Adder table[] = {add_stretches<V + 1>...};
  return table[vectors - 1];
}

// The same for a stretch of any number of vectors.
static void add_all(const Entry* entries, int count, const float* from, float* to, int vectors) {
  const int parts = (vectors + LONGEST - 1) / LONGEST;
  for (int part = 0; part < parts; part++) {
    const int first = vectors * part / parts, many = vectors * (part + 1) / parts - first;
    const Adder add = adder_of(many, std::make_integer_sequence<int, LONGEST>());
    add(entries, count, from + first * LANES, to + first * LANES);
  }
}

struct Sparse {  // sizes of a block, and where its numbers lie in an array; with a null array it only counts
  int across, stretch;          // columns with border; numbers that a kernel row sees
  long plane, weights, places;  // numbers of a sample, and of an output channel's weights; positions behind pooling
  float *slopes, *chosen, *x, *d, *w, *sums, *turned, *rows;
  Entry* entries;
  int32_t *counts, *pixel, *corner;
  int64_t used = 0;

  static bool fits(const Block& b) {  // where it pays, too: many channels
    return b.pool && !b.norm && b.kernel > 1 && b.channels % BLOCK == 0 && b.channels * b.kernel * b.kernel >= 400;
  }

  Sparse(const Block& b, int batch, long lanes, char* start) {
    across = b.width + 2 * b.border, stretch = b.kernel * b.channels;
    plane = (long)(b.height + 2 * b.border) * across * b.channels;
    weights = (long)b.kernel * stretch, places = b.out * b.pooled();
    auto take = [&](long count) {
      float* found = (float*)(start + used);
      used += (count * 4 + 63) / 64 * 64;
      return found;
    };
    slopes = take(batch * places), chosen = take(batch * places), x = take(batch * plane), d = take(batch * plane);
    w = take(b.out * weights), sums = take(b.out * weights);
    turned = take(batch * b.channels), rows = take(lanes * b.channels);
    entries = (Entry*)take(2 * std::max(batch * b.pooled(), b.pixels() * b.out));
    counts = (int32_t*)take(b.pixels());
    pixel = (int32_t*)take(4 * b.pooled()), corner = (int32_t*)take(4 * b.pooled());
  }
};

// d_weight, d_bias, and with `further` the gradient of the input, which replaces that of the output in `d`.
// lanes: numbers in which a batch lies in x, d and chosen.
static void behind_pooling(const Block& b, int batch, long lanes, const float* x, const ivec* chosen, float* d,
                           bool further, char* room) {
  const Sparse m(b, batch, lanes, room);
  const long inner = (long)b.height * b.width, pooled = b.pooled(), wide = b.columns();
  const int vectors = m.stretch / LANES;
  transpose(d, lanes, (int)m.places, batch, m.slopes, m.places);
  transpose((const float*)chosen, lanes, (int)m.places, batch, m.chosen, m.places);
  auto which = [&](long s, long place) {
    int32_t found;
    std::memcpy(&found, m.chosen + s * m.places + place, 4);
    return found;
  };
  std::memset((void*)m.x, 0, batch * m.plane * 4);
  for (long k = 0; k < 4 * pooled; k++) {  // pixel of the output, and corner of what it sees, of window k / 4's k % 4-th
    const long half = wide / 2, row = k / 4 / half * 2 + k % 4 / 2, column = k / 4 % half * 2 + k % 2;
    m.pixel[k] = (int32_t)(row * wide + column);
    m.corner[k] = (int32_t)((row * m.across + column) * b.channels);
  }
  auto start = [&](long pixel) {  // of an input pixel in a plane with its border
    return ((pixel / b.width + b.border) * m.across + pixel % b.width + b.border) * b.channels;
  };
  for (long pixel = 0; pixel < inner; pixel++) {
    transpose(x + pixel * lanes, inner * lanes, b.channels, batch, m.turned, b.channels);
    for (long s = 0; s < batch; s++)
      std::memcpy(m.x + s * m.plane + start(pixel), m.turned + s * b.channels, b.channels * 4);
  }
  const long together = std::max<long>(1, 2 * MIDDLE / (m.plane * 4));  // samples whose images stay in the cache
  std::memset((void*)m.sums, 0, b.out * m.weights * 4);
  for (int o = 0; o < b.out && b.d_bias; o++) b.d_bias[o] = 0;
  for (long first = 0; first < batch; first += together)
    for (int o = 0; o < b.out; o++) {
      int count = 0;
      double total = 0;
      for (long s = first; s < std::min<long>(batch, first + together); s++)
        for (long place = 0; place < pooled; place++) {
          const int one = which(s, o * pooled + place);
          const float slope = m.slopes[s * m.places + o * pooled + place];
          m.entries[count] = {(int32_t)(s * m.plane) + m.corner[4 * place + std::max(one, 0)], slope};
          if (one >= 0) count++, total += slope;
        }
      if (b.d_bias) b.d_bias[o] += (float)total;
      for (int r = 0; r < b.kernel && b.d_weight; r++)
        add_all(m.entries, count, m.x + (long)r * m.across * b.channels, m.sums + o * m.weights + r * m.stretch,
                vectors);
    }
  for (long o = 0; o < b.out && b.d_weight; o++)
    for (int i = 0; i < b.channels; i++)
      for (int k = 0; k < b.kernel * b.kernel; k++)
        b.d_weight[(o * b.channels + i) * b.kernel * b.kernel + k] = m.sums[o * m.weights + k * b.channels + i];
  if (!further) return;
  for (long o = 0; o < b.out; o++)
    for (int i = 0; i < b.channels; i++)
      for (int k = 0; k < b.kernel * b.kernel; k++)
        m.w[o * m.weights + k * b.channels + i] = b.weight[(o * b.channels + i) * b.kernel * b.kernel + k];
  std::memset((void*)m.d, 0, batch * m.plane * 4);
  for (long s = 0; s < batch; s++) {
    std::memset((void*)m.counts, 0, b.pixels() * 4);
    for (long o = 0; o < b.out; o++)
      for (long place = 0; place < pooled; place++) {
        const int one = which(s, o * pooled + place);
        if (one < 0) continue;
        const int32_t at = m.pixel[4 * place + one];
        m.entries[at * b.out + m.counts[at]++] = {(int32_t)(o * m.weights),
                                                  m.slopes[s * m.places + o * pooled + place]};
      }
    for (long at = 0; at < b.pixels(); at++) {
      float* to = m.d + s * m.plane + (at / wide * m.across + at % wide) * b.channels;
      for (int r = 0; r < b.kernel && m.counts[at]; r++)
        add_all(m.entries + at * b.out, m.counts[at], m.w + r * m.stretch, to + (long)r * m.across * b.channels,
                vectors);
    }
  }
  for (long pixel = 0; pixel < inner; pixel++) {
    for (long s = 0; s < batch; s++)
      std::memcpy(m.turned + s * b.channels, m.d + s * m.plane + start(pixel), b.channels * 4);
    transpose(m.turned, b.channels, batch, b.channels, m.rows, lanes);
    for (int i = 0; i < b.channels; i++) std::memcpy(d + (i * inner + pixel) * lanes, m.rows + i * lanes, lanes * 4);
  }
}
