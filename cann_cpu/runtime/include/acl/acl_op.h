// SPDX-License-Identifier: Apache-2.0
// Attribute objects and execution of operators by type name (the aclop path).
#ifndef INC_EXTERNAL_ACL_ACL_OP_H_  // as in torch_npu's copy: a file may include both
#define INC_EXTERNAL_ACL_ACL_OP_H_

#include "acl/acl_rt.h"

#pragma GCC visibility push(default)
extern "C" {

typedef struct aclopAttr aclopAttr;

typedef enum aclEngineType { ACL_ENGINE_SYS, ACL_ENGINE_AICORE, ACL_ENGINE_VECTOR } aclopEngineType;

aclopAttr* aclopCreateAttr();
void aclopDestroyAttr(const aclopAttr* attr);
aclError aclopSetAttrBool(aclopAttr* attr, const char* attrName, uint8_t attrValue);
aclError aclopSetAttrInt(aclopAttr* attr, const char* attrName, int64_t attrValue);
aclError aclopSetAttrFloat(aclopAttr* attr, const char* attrName, float attrValue);
aclError aclopSetAttrString(aclopAttr* attr, const char* attrName, const char* attrValue);
aclError aclopSetAttrDataType(aclopAttr* attr, const char* attrName, aclDataType attrValue);
aclError aclopSetAttrListBool(aclopAttr* attr, const char* attrName, int numValues, const uint8_t* values);
aclError aclopSetAttrListInt(aclopAttr* attr, const char* attrName, int numValues, const int64_t* values);
aclError aclopSetAttrListFloat(aclopAttr* attr, const char* attrName, int numValues, const float* values);
aclError aclopSetAttrListDataType(aclopAttr* attr, const char* attrName, int numValues, const aclDataType values[]);
aclError aclopSetAttrListString(aclopAttr* attr, const char* attrName, int numValues, const char** values);
aclError aclopSetAttrListListInt(aclopAttr* attr, const char* attrName, int numLists, const int* numValues,
                                 const int64_t* const values[]);

// The models of single operators in a folder, or in memory, which atc --singleop of cann_cpu has written.
aclError aclopSetModelDir(const char* modelDir);
aclError aclopLoad(const void* model, size_t modelSize);

// Requires a loaded model for the operator and these descriptions.
aclError aclopExecute(const char* opType, int numInputs, const aclTensorDesc* const inputDesc[],
                      const aclDataBuffer* const inputs[], int numOutputs, const aclTensorDesc* const outputDesc[],
                      aclDataBuffer* const outputs[], const aclopAttr* attr, aclrtStream stream);
aclError aclopExecuteV2(const char* opType, int numInputs, aclTensorDesc* inputDesc[], aclDataBuffer* inputs[],
                        int numOutputs, aclTensorDesc* outputDesc[], aclDataBuffer* outputs[], aclopAttr* attr,
                        aclrtStream stream);

}  // extern "C"
#pragma GCC visibility pop

#endif
