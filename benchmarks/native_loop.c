/* What a host in C pays for the same: the calls in a loop, results released. */

#include "cartridge_abi.h"

typedef ctg_status (*infer_function)(ctg_session *, const ctg_buffer *, ctg_result **);
typedef ctg_status (*push_function)(ctg_session *, const ctg_buffer *);
typedef ctg_status (*pull_function)(ctg_session *, ctg_result **);
typedef void (*release_function)(ctg_result *);

int loop_infer(infer_function infer, release_function release, ctg_session *session,
               const void *data, size_t len, int runs);
int loop_push(push_function push, pull_function pull, release_function release,
              ctg_session *session, const void *data, size_t len, int runs);

int loop_infer(infer_function infer, release_function release, ctg_session *session,
               const void *data, size_t len, int runs)
{
    const ctg_buffer input = {CTG_SIZE_BUFFER, data, len};

    for (int run = 0; run < runs; run++) {
        ctg_result *result = NULL;
        ctg_status status = infer(session, &input, &result);
        if (status != CTG_OK)
            return status;
        release(result);
    }
    return CTG_OK;
}

int loop_push(push_function push, pull_function pull, release_function release,
              ctg_session *session, const void *data, size_t len, int runs)
{
    const ctg_buffer chunk = {CTG_SIZE_BUFFER, data, len};

    for (int run = 0; run < runs; run++) {
        ctg_result *result = NULL;
        ctg_status status = push(session, &chunk);
        if (status == CTG_OK)
            status = pull(session, &result);
        if (status != CTG_OK)
            return status;
        release(result);
    }
    return CTG_OK;
}
