// For tests only: files published for AI Platform, which must be accepted
// unchanged.
#ifndef LOCKSTEP_COMMON_TRAINING_TRAINING_FILE_FIXTURE_H_
#define LOCKSTEP_COMMON_TRAINING_TRAINING_FILE_FIXTURE_H_

namespace lockstep {

// config.yaml of "Distributed Training in TensorFlow with AI Platform &
// Docker" (S. Paul), byte for byte, and its command.
inline constexpr char kTwoV100[] = R"(trainingInput:
    scaleTier: CUSTOM
    # Configure a master worker with 2 V100 GPUs
    masterType: n1-standard-8 # Specify the base machine type
    masterConfig:
      acceleratorConfig:
        count: 2
        type: NVIDIA_TESLA_V100
)";
inline constexpr char kTwoV100Command[] =
    R"(gcloud ai-platform jobs submit training ${JOB_NAME} \
    --region ${REGION} \
    --master-image-uri ${IMAGE_URI} \
    --config ./config.yaml \
    -- \
    trainer/task.py --bucket ${BUCKET_NAME} \
    --train-pattern ${TRAIN_FILES} \
    --valid-pattern ${VALIDATION_FILES}
)";

// A master and a worker with a T4 each, as in "Run Your First Multi-Worker
// TensorFlow Training Job" (N. Namjoshi), with the lines that end in "Config:",
// which the published text lost. The braces in its command are placeholders.
inline constexpr char kTwoMachines[] = R"(trainingInput:
  scaleTier: CUSTOM
  masterType: n1-standard-8
  masterConfig:
    acceleratorConfig: {count: 1, type: NVIDIA_TESLA_T4}
    imageUri: gcr.io/my-project/trainer:1
  useChiefInTfConfig: true
  workerType: n1-standard-8
  workerCount: 1
  workerConfig:
    acceleratorConfig: {count: 1, type: NVIDIA_TESLA_T4}
    imageUri: gcr.io/my-project/trainer:1
)";
inline constexpr char kTwoMachinesCommand[] =
    R"(gcloud ai-platform jobs submit training {job_name} \
   --region europe-west2 \
   --config config.yaml \
   --job-dir gs://{gcs_bucket/model_dir} -- \
   --epochs 5
)";

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_TRAINING_TRAINING_FILE_FIXTURE_H_
