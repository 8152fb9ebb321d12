// What programs use of the CUDA samples' header of this name. (The samples' own, beside a file,
// comes first.)
#pragma once

#include <math.h>

#include "helper_string.h"
#include "helper_timer.h"

/// Whether two arrays are the same, relative to the first one's length.
inline bool sdkCompareL2fe(const float* reference, const float* data, unsigned size,
                           float tolerance) {
    float error = 0;
    float all = 0;
    for (unsigned i = 0; i < size; ++i) {
        const float difference = reference[i] - data[i];
        error += difference * difference;
        all += reference[i] * reference[i];
    }
    return all > 0 && sqrtf(error) / sqrtf(all) < tolerance;
}
