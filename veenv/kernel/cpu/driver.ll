; of driver.c 5b2f25b254c4d8ea8f550cbf492114b1e737600c4ba412c0528e6963901cd613
%struct.XLA_FFI_TypeInfo = type { i64, ptr, ptr }
%struct.XLA_FFI_TypeId = type { i64 }
%struct.XLA_FFI_Error_Create_Args = type { i64, ptr, ptr, i32 }
%struct.XLA_FFI_State_Set_Args = type { i64, ptr, ptr, i32, ptr, ptr }
%struct.XLA_FFI_Error_Destroy_Args = type { i64, ptr, ptr }
%struct.XLA_FFI_ThreadPool_Schedule_Args = type { i64, ptr, ptr, ptr, ptr }
%struct.XLA_FFI_State_Get_Args = type { i64, ptr, ptr, i32, ptr, ptr }
%struct.XLA_FFI_ThreadPool_NumThreads_Args = type { i64, ptr, ptr, ptr }
%struct.leaf = type { i64, i64, i64, i64, i64, i64, ptr, ptr, ptr, i64, ptr }
%struct.input = type { ptr, i64 }

@veenv_version = global i64 -1, align 8
@veenv_type_info = global %struct.XLA_FFI_TypeInfo { i64 24, ptr null, ptr @delete_state }, align 8
@veenv_type_id = global %struct.XLA_FFI_TypeId zeroinitializer, align 8
@.str = private unnamed_addr constant [182 x i8] c"the code of a fused veenv kernel is not in this process: it was compiled in another one, or its program was lowered long ago; trace and lower the function again (jax.clear_caches())\00", align 1
@veenv_lock = global i64 0, align 8
@veenv_oldest = global i64 0, align 8
@veenv_newest = global i64 0, align 8
@veenv_advise = global i64 0, align 8
@entries = internal unnamed_addr global ptr null, align 8
@.str.1 = private unnamed_addr constant [58 x i8] c"no memory is left for the buffers of a fused veenv kernel\00", align 1

define void @veenv_insert(ptr %0) {
  %2 = atomicrmw xchg ptr @veenv_lock, i64 1 acquire, align 8
  %3 = icmp eq i64 %2, 0
  br i1 %3, label %8, label %4

4:
  %5 = tail call i32 @sched_yield()
  %6 = atomicrmw xchg ptr @veenv_lock, i64 1 acquire, align 8
  %7 = icmp eq i64 %6, 0
  br i1 %7, label %8, label %4

8:
  %9 = load i64, ptr %0, align 8
  %10 = load ptr, ptr @entries, align 8
  %11 = icmp eq ptr %10, null
  br i1 %11, label %25, label %12

12:
  %13 = load i64, ptr %10, align 8
  %14 = icmp eq i64 %13, %9
  br i1 %14, label %28, label %15

15:
  %16 = phi ptr [ %18, %20 ], [ %10, %12 ]
  %17 = getelementptr inbounds i8, ptr %16, i64 16
  %18 = load ptr, ptr %17, align 8
  %19 = icmp eq ptr %18, null
  br i1 %19, label %23, label %20

20:
  %21 = load i64, ptr %18, align 8
  %22 = icmp eq i64 %21, %9
  br i1 %22, label %28, label %15

23:
  %24 = getelementptr inbounds i8, ptr %16, i64 16
  br label %25

25:
  %26 = phi ptr [ @entries, %8 ], [ %24, %23 ]
  %27 = getelementptr inbounds i8, ptr %0, i64 16
  store ptr null, ptr %27, align 8
  store ptr %0, ptr %26, align 8
  br label %28

28:
  store atomic i64 0, ptr @veenv_lock release, align 8
  ret void
}



define i32 @veenv_remove(ptr %0) {
  %2 = atomicrmw xchg ptr @veenv_lock, i64 1 acquire, align 8
  %3 = icmp eq i64 %2, 0
  br i1 %3, label %8, label %4

4:
  %5 = tail call i32 @sched_yield()
  %6 = atomicrmw xchg ptr @veenv_lock, i64 1 acquire, align 8
  %7 = icmp eq i64 %6, 0
  br i1 %7, label %8, label %4

8:
  %9 = getelementptr inbounds i8, ptr %0, i64 8
  %10 = load atomic i64, ptr %9 acquire, align 8
  %11 = icmp eq i64 %10, 0
  %12 = load i64, ptr %0, align 8
  %13 = load ptr, ptr @entries, align 8
  %14 = icmp eq ptr %13, null
  br i1 %14, label %29, label %15

15:
  %16 = load i64, ptr %13, align 8
  %17 = icmp eq i64 %16, %12
  br i1 %17, label %29, label %18

18:
  %19 = phi ptr [ %21, %23 ], [ %13, %15 ]
  %20 = getelementptr inbounds i8, ptr %19, i64 16
  %21 = load ptr, ptr %20, align 8
  %22 = icmp eq ptr %21, null
  br i1 %22, label %26, label %23

23:
  %24 = load i64, ptr %21, align 8
  %25 = icmp eq i64 %24, %12
  br i1 %25, label %26, label %18

26:
  %27 = phi ptr [ %21, %23 ], [ null, %18 ]
  %28 = getelementptr inbounds i8, ptr %19, i64 16
  br label %29

29:
  %30 = phi ptr [ null, %8 ], [ %13, %15 ], [ %27, %26 ]
  %31 = phi ptr [ @entries, %8 ], [ @entries, %15 ], [ %28, %26 ]
  %32 = icmp eq ptr %30, %0
  %33 = and i1 %11, %32
  br i1 %33, label %34, label %37

34:
  %35 = getelementptr inbounds i8, ptr %0, i64 16
  %36 = load ptr, ptr %35, align 8
  store ptr %36, ptr %31, align 8
  br label %37

37:
  %38 = zext i1 %11 to i32
  store atomic i64 0, ptr @veenv_lock release, align 8
  ret i32 %38
}

define internal void @delete_state(ptr %0) {
  %2 = getelementptr inbounds i8, ptr %0, i64 8
  %3 = atomicrmw add ptr %2, i64 -1 acq_rel, align 8
  ret void
}

define ptr @veenv_instantiate(ptr %0) {
  %2 = alloca %struct.XLA_FFI_Error_Create_Args, align 8
  %3 = alloca %struct.XLA_FFI_State_Set_Args, align 8
  %4 = load i64, ptr @veenv_type_id, align 8
  %5 = tail call fastcc i32 @is_query(ptr %0, i64 %4)
  %6 = icmp eq i32 %5, 0
  br i1 %6, label %7, label %59

7:
  %8 = getelementptr inbounds i8, ptr %0, i64 160
  %9 = load ptr, ptr %8, align 8
  %10 = load ptr, ptr %9, align 8
  %11 = getelementptr inbounds i8, ptr %10, i64 8
  %12 = load ptr, ptr %11, align 8
  %13 = load i64, ptr %12, align 8
  %14 = atomicrmw xchg ptr @veenv_lock, i64 1 acquire, align 8
  %15 = icmp eq i64 %14, 0
  br i1 %15, label %20, label %16

16:
  %17 = tail call i32 @sched_yield()
  %18 = atomicrmw xchg ptr @veenv_lock, i64 1 acquire, align 8
  %19 = icmp eq i64 %18, 0
  br i1 %19, label %20, label %16

20:
  %21 = load ptr, ptr @entries, align 8
  %22 = icmp eq ptr %21, null
  br i1 %22, label %50, label %23

23:
  %24 = load i64, ptr %21, align 8
  %25 = icmp eq i64 %24, %13
  br i1 %25, label %34, label %26

26:
  %27 = phi ptr [ %29, %31 ], [ %21, %23 ]
  %28 = getelementptr inbounds i8, ptr %27, i64 16
  %29 = load ptr, ptr %28, align 8
  %30 = icmp eq ptr %29, null
  br i1 %30, label %50, label %31

31:
  %32 = load i64, ptr %29, align 8
  %33 = icmp eq i64 %32, %13
  br i1 %33, label %34, label %26

34:
  %35 = phi ptr [ %21, %23 ], [ %29, %31 ]
  %36 = getelementptr inbounds i8, ptr %35, i64 8
  %37 = atomicrmw add ptr %36, i64 1 acq_rel, align 8
  store atomic i64 0, ptr @veenv_lock release, align 8
  %38 = getelementptr inbounds i8, ptr %0, i64 16
  %39 = load ptr, ptr %38, align 8
  %40 = getelementptr inbounds i8, ptr %39, i64 104
  %41 = load ptr, ptr %40, align 8
  store i64 48, ptr %3, align 8
  %42 = getelementptr inbounds i8, ptr %3, i64 8
  store ptr null, ptr %42, align 8
  %43 = getelementptr inbounds i8, ptr %3, i64 16
  %44 = getelementptr inbounds i8, ptr %0, i64 24
  %45 = load ptr, ptr %44, align 8
  store ptr %45, ptr %43, align 8
  %46 = getelementptr inbounds i8, ptr %3, i64 24
  store i32 0, ptr %46, align 8
  %47 = getelementptr inbounds i8, ptr %3, i64 32
  store ptr @veenv_type_id, ptr %47, align 8
  %48 = getelementptr inbounds i8, ptr %3, i64 40
  store ptr %35, ptr %48, align 8
  %49 = call ptr %41(ptr %3)
  br label %59

50:
  store atomic i64 0, ptr @veenv_lock release, align 8
  %51 = getelementptr inbounds i8, ptr %0, i64 16
  %52 = load ptr, ptr %51, align 8
  %53 = getelementptr inbounds i8, ptr %52, i64 48
  %54 = load ptr, ptr %53, align 8
  store i64 28, ptr %2, align 8
  %55 = getelementptr inbounds i8, ptr %2, i64 8
  store ptr null, ptr %55, align 8
  %56 = getelementptr inbounds i8, ptr %2, i64 16
  store ptr @.str, ptr %56, align 8
  %57 = getelementptr inbounds i8, ptr %2, i64 24
  store i32 5, ptr %57, align 8
  %58 = call ptr %54(ptr %2)
  br label %59

59:
  %60 = phi ptr [ null, %1 ], [ %49, %34 ], [ %58, %50 ]
  ret ptr %60
}

define internal fastcc i32 @is_query(ptr %0, i64 %1) unnamed_addr {
  %3 = getelementptr inbounds i8, ptr %0, i64 8
  %4 = load ptr, ptr %3, align 8
  %5 = icmp eq ptr %4, null
  br i1 %5, label %35, label %6

6:
  %7 = getelementptr inbounds i8, ptr %4, i64 8
  %8 = load i32, ptr %7, align 8
  %9 = icmp eq i32 %8, 1
  br i1 %9, label %10, label %35

10:
  %11 = getelementptr inbounds i8, ptr %4, i64 24
  %12 = load ptr, ptr %11, align 8
  %13 = getelementptr inbounds i8, ptr %0, i64 16
  %14 = load ptr, ptr %13, align 8
  %15 = getelementptr inbounds i8, ptr %14, i64 32
  %16 = load i32, ptr %15, align 8
  %17 = getelementptr inbounds i8, ptr %14, i64 36
  %18 = load i32, ptr %17, align 4
  %19 = sext i32 %16 to i64
  %20 = shl nsw i64 %19, 32
  %21 = sext i32 %18 to i64
  %22 = or i64 %20, %21
  store i64 %22, ptr @veenv_version, align 8
  %23 = load i64, ptr @veenv_oldest, align 8
  %24 = icmp sle i64 %23, %22
  %25 = load i64, ptr @veenv_newest, align 8
  %26 = icmp sle i64 %22, %25
  %27 = select i1 %24, i1 %26, i1 false
  %28 = getelementptr inbounds i8, ptr %12, i64 24
  store i32 %16, ptr %28, align 8
  %29 = select i1 %27, i32 %18, i32 -1
  %30 = getelementptr inbounds i8, ptr %12, i64 28
  store i32 %29, ptr %30, align 4
  %31 = getelementptr inbounds i8, ptr %12, i64 32
  store i32 0, ptr %31, align 8
  %32 = icmp eq i64 %1, 0
  br i1 %32, label %35, label %33

33:
  %34 = getelementptr inbounds i8, ptr %12, i64 40
  store i64 %1, ptr %34, align 8
  br label %35

35:
  %36 = phi i32 [ 0, %6 ], [ 0, %2 ], [ 1, %33 ], [ 1, %10 ]
  ret i32 %36
}

define ptr @veenv_execute(ptr %0) {
  %2 = alloca %struct.XLA_FFI_Error_Destroy_Args, align 8
  %3 = alloca %struct.XLA_FFI_ThreadPool_Schedule_Args, align 8
  %4 = alloca %struct.XLA_FFI_Error_Create_Args, align 8
  %5 = alloca %struct.XLA_FFI_Error_Create_Args, align 8
  %6 = alloca %struct.XLA_FFI_Error_Destroy_Args, align 8
  %7 = alloca %struct.XLA_FFI_State_Get_Args, align 8
  %8 = alloca i64, align 8
  %9 = alloca %struct.XLA_FFI_ThreadPool_NumThreads_Args, align 8
  %10 = tail call fastcc i32 @is_query(ptr %0, i64 0)
  %11 = icmp eq i32 %10, 0
  br i1 %11, label %12, label %273

12:
  store i64 48, ptr %7, align 8
  %13 = getelementptr inbounds i8, ptr %7, i64 8
  store ptr null, ptr %13, align 8
  %14 = getelementptr inbounds i8, ptr %7, i64 16
  %15 = getelementptr inbounds i8, ptr %0, i64 24
  %16 = load ptr, ptr %15, align 8
  store ptr %16, ptr %14, align 8
  %17 = getelementptr inbounds i8, ptr %7, i64 24
  store i32 0, ptr %17, align 8
  %18 = getelementptr inbounds i8, ptr %7, i64 32
  store ptr @veenv_type_id, ptr %18, align 8
  %19 = getelementptr inbounds i8, ptr %7, i64 40
  store ptr null, ptr %19, align 8
  %20 = getelementptr inbounds i8, ptr %0, i64 16
  %21 = load ptr, ptr %20, align 8
  %22 = getelementptr inbounds i8, ptr %21, i64 112
  %23 = load ptr, ptr %22, align 8
  %24 = call ptr %23(ptr %7)
  %25 = icmp eq ptr %24, null
  br i1 %25, label %26, label %271

26:
  %27 = load ptr, ptr %19, align 8
  %28 = getelementptr inbounds i8, ptr %0, i64 112
  %29 = load ptr, ptr %28, align 8
  %30 = load ptr, ptr %29, align 8
  %31 = getelementptr inbounds i8, ptr %30, i64 32
  %32 = load i64, ptr %31, align 8
  %33 = getelementptr inbounds i8, ptr %27, i64 88
  %34 = load ptr, ptr %33, align 8
  %35 = getelementptr inbounds i8, ptr %34, i64 8
  %36 = load i64, ptr %35, align 8
  %37 = sub nsw i64 %32, %36
  %38 = icmp sgt i64 %37, 0
  br i1 %38, label %42, label %39

39:
  %40 = getelementptr inbounds i8, ptr %27, i64 56
  %41 = load i64, ptr %40, align 8
  store i64 1, ptr %8, align 8
  br label %57

42:
  %43 = getelementptr inbounds i8, ptr %30, i64 40
  %44 = load ptr, ptr %43, align 8
  br label %45

45:
  %46 = phi i64 [ 0, %42 ], [ %51, %45 ]
  %47 = phi i64 [ 1, %42 ], [ %50, %45 ]
  %48 = getelementptr inbounds i64, ptr %44, i64 %46
  %49 = load i64, ptr %48, align 8
  %50 = mul nsw i64 %49, %47
  %51 = add nuw nsw i64 %46, 1
  %52 = icmp eq i64 %51, %37
  br i1 %52, label %53, label %45

53:
  %54 = getelementptr inbounds i8, ptr %27, i64 56
  %55 = load i64, ptr %54, align 8
  store i64 1, ptr %8, align 8
  %56 = icmp eq i64 %50, 0
  br i1 %56, label %269, label %57

57:
  %58 = phi i64 [ %41, %39 ], [ %55, %53 ]
  %59 = phi i64 [ 1, %39 ], [ %50, %53 ]
  %60 = getelementptr inbounds i8, ptr %27, i64 96
  %61 = load i64, ptr %60, align 8
  %62 = shl nsw i64 %61, 1
  %63 = icmp slt i64 %59, %62
  br i1 %63, label %95, label %64

64:
  %65 = load ptr, ptr %20, align 8
  %66 = getelementptr inbounds i8, ptr %65, i64 144
  %67 = load ptr, ptr %66, align 8
  store i64 32, ptr %9, align 8
  %68 = getelementptr inbounds i8, ptr %9, i64 8
  store ptr null, ptr %68, align 8
  %69 = getelementptr inbounds i8, ptr %9, i64 16
  %70 = load ptr, ptr %15, align 8
  store ptr %70, ptr %69, align 8
  %71 = getelementptr inbounds i8, ptr %9, i64 24
  store ptr %8, ptr %71, align 8
  %72 = call ptr %67(ptr %9)
  %73 = icmp eq ptr %72, null
  br i1 %73, label %80, label %74

74:
  %75 = load ptr, ptr %20, align 8
  %76 = getelementptr inbounds i8, ptr %75, i64 64
  %77 = load ptr, ptr %76, align 8
  store i64 24, ptr %6, align 8
  %78 = getelementptr inbounds i8, ptr %6, i64 8
  store ptr null, ptr %78, align 8
  %79 = getelementptr inbounds i8, ptr %6, i64 16
  store ptr %72, ptr %79, align 8
  call void %77(ptr %6)
  store i64 1, ptr %8, align 8
  br label %95

80:
  %81 = load i64, ptr %8, align 8
  %82 = icmp sgt i64 %81, 1
  br i1 %82, label %83, label %88

83:
  %84 = shl nsw i64 %81, 2
  %85 = sdiv i64 %59, %84
  %86 = load i64, ptr %60, align 8
  %87 = call i64 @llvm.smax.i64(i64 %85, i64 %86)
  br label %95

88:
  %89 = add nsw i64 %59, %58
  %90 = freeze i64 %89
  %91 = add i64 %90, -1
  %92 = srem i64 %91, %58
  %93 = sub nsw i64 %91, %92
  %94 = icmp eq i64 %81, 1
  br i1 %94, label %103, label %110

95:
  %96 = phi i64 [ %59, %57 ], [ %59, %74 ], [ %87, %83 ]
  %97 = phi i64 [ 1, %57 ], [ 1, %74 ], [ %81, %83 ]
  %98 = add nsw i64 %96, %58
  %99 = freeze i64 %98
  %100 = add i64 %99, -1
  %101 = srem i64 %100, %58
  %102 = sub nsw i64 %100, %101
  br label %103

103:
  %104 = phi i64 [ %93, %88 ], [ %102, %95 ]
  %105 = phi i64 [ 1, %88 ], [ %97, %95 ]
  %106 = add i64 %59, -1
  %107 = add i64 %106, %104
  %108 = sdiv i64 %107, %104
  %109 = call i64 @llvm.smin.i64(i64 %105, i64 %108)
  br label %110

110:
  %111 = phi i64 [ %104, %103 ], [ %93, %88 ]
  %112 = phi i64 [ %109, %103 ], [ 1, %88 ]
  %113 = getelementptr inbounds i8, ptr %27, i64 32
  %114 = load i64, ptr %113, align 8
  %115 = getelementptr inbounds i8, ptr %27, i64 40
  %116 = load i64, ptr %115, align 8
  %117 = add i64 %116, %112
  %118 = shl i64 %114, 4
  %119 = shl i64 %117, 3
  %120 = add i64 %118, 104
  %121 = add i64 %120, %119
  %122 = call ptr @malloc(i64 %121)
  %123 = icmp eq ptr %122, null
  br i1 %123, label %203, label %124

124:
  %125 = getelementptr inbounds i8, ptr %122, i64 104
  %126 = getelementptr inbounds ptr, ptr %125, i64 %114
  %127 = getelementptr inbounds ptr, ptr %126, i64 %116
  %128 = getelementptr inbounds i64, ptr %127, i64 %114
  %129 = add i64 %59, -1
  %130 = add i64 %129, %111
  %131 = sdiv i64 %130, %111
  store i64 0, ptr %122, align 8
  %132 = getelementptr inbounds i8, ptr %122, i64 8
  store i64 0, ptr %132, align 8
  %133 = getelementptr inbounds i8, ptr %122, i64 16
  store i64 1, ptr %133, align 8
  %134 = getelementptr inbounds i8, ptr %122, i64 24
  store i64 0, ptr %134, align 8
  %135 = getelementptr inbounds i8, ptr %122, i64 32
  store i64 %131, ptr %135, align 8
  %136 = getelementptr inbounds i8, ptr %122, i64 40
  store i64 %111, ptr %136, align 8
  %137 = getelementptr inbounds i8, ptr %122, i64 48
  store i64 %59, ptr %137, align 8
  %138 = getelementptr inbounds i8, ptr %122, i64 56
  store i64 %112, ptr %138, align 8
  %139 = getelementptr inbounds i8, ptr %122, i64 64
  store ptr %27, ptr %139, align 8
  %140 = getelementptr inbounds i8, ptr %122, i64 72
  store ptr %125, ptr %140, align 8
  %141 = getelementptr inbounds i8, ptr %122, i64 80
  store ptr %126, ptr %141, align 8
  %142 = getelementptr inbounds i8, ptr %122, i64 88
  store ptr %127, ptr %142, align 8
  %143 = getelementptr inbounds i8, ptr %122, i64 96
  store ptr %128, ptr %143, align 8
  %144 = icmp sgt i64 %114, 0
  br i1 %144, label %145, label %148

145:
  %146 = getelementptr inbounds i8, ptr %0, i64 72
  %147 = getelementptr inbounds i8, ptr %27, i64 80
  br label %150

148:
  %149 = icmp sgt i64 %116, 0
  br i1 %149, label %170, label %168

150:
  %151 = phi i64 [ 0, %145 ], [ %166, %150 ]
  %152 = load ptr, ptr %146, align 8
  %153 = getelementptr inbounds ptr, ptr %152, i64 %151
  %154 = load ptr, ptr %153, align 8
  %155 = getelementptr inbounds i8, ptr %154, i64 24
  %156 = load ptr, ptr %155, align 8
  %157 = getelementptr inbounds ptr, ptr %125, i64 %151
  store ptr %156, ptr %157, align 8
  %158 = getelementptr inbounds i8, ptr %154, i64 32
  %159 = load i64, ptr %158, align 8
  %160 = load ptr, ptr %147, align 8
  %161 = getelementptr inbounds %struct.leaf, ptr %160, i64 %151, i32 1
  %162 = load i64, ptr %161, align 8
  %163 = icmp sgt i64 %159, %162
  %164 = zext i1 %163 to i64
  %165 = getelementptr inbounds i64, ptr %127, i64 %151
  store i64 %164, ptr %165, align 8
  %166 = add nuw nsw i64 %151, 1
  %167 = icmp eq i64 %166, %114
  br i1 %167, label %148, label %150

168:
  %169 = icmp sgt i64 %112, 0
  br i1 %169, label %198, label %211

170:
  %171 = phi i64 [ %196, %195 ], [ 0, %148 ]
  %172 = load ptr, ptr %28, align 8
  %173 = getelementptr inbounds ptr, ptr %172, i64 %171
  %174 = load ptr, ptr %173, align 8
  %175 = getelementptr inbounds i8, ptr %174, i64 24
  %176 = load ptr, ptr %175, align 8
  %177 = getelementptr inbounds ptr, ptr %126, i64 %171
  store ptr %176, ptr %177, align 8
  %178 = load i64, ptr @veenv_advise, align 8
  %179 = icmp eq i64 %178, 0
  br i1 %179, label %195, label %180

180:
  %181 = load ptr, ptr %33, align 8
  %182 = getelementptr inbounds %struct.leaf, ptr %181, i64 %171
  %183 = load i64, ptr %182, align 8
  %184 = mul nsw i64 %183, %59
  %185 = icmp sgt i64 %184, 33554431
  br i1 %185, label %186, label %195

186:
  %187 = ptrtoint ptr %176 to i64
  %188 = add nsw i64 %184, %187
  %189 = and i64 %188, -2097152
  %190 = add nsw i64 %187, 2097151
  %191 = and i64 %190, -2097152
  %192 = inttoptr i64 %191 to ptr
  %193 = sub nsw i64 %189, %191
  %194 = call i32 @madvise(ptr %192, i64 %193, i32 14)
  br label %195

195:
  %196 = add nuw nsw i64 %171, 1
  %197 = icmp eq i64 %196, %116
  br i1 %197, label %168, label %170

198:
  %199 = phi i64 [ %201, %198 ], [ 0, %168 ]
  %200 = getelementptr inbounds i64, ptr %128, i64 %199
  store i64 0, ptr %200, align 8
  %201 = add nuw nsw i64 %199, 1
  %202 = icmp eq i64 %201, %112
  br i1 %202, label %211, label %198

203:
  %204 = load ptr, ptr %20, align 8
  %205 = getelementptr inbounds i8, ptr %204, i64 48
  %206 = load ptr, ptr %205, align 8
  store i64 28, ptr %5, align 8
  %207 = getelementptr inbounds i8, ptr %5, i64 8
  store ptr null, ptr %207, align 8
  %208 = getelementptr inbounds i8, ptr %5, i64 16
  store ptr @.str.1, ptr %208, align 8
  %209 = getelementptr inbounds i8, ptr %5, i64 24
  store i32 8, ptr %209, align 8
  %210 = call ptr %206(ptr %5)
  br label %269

211:
  %212 = getelementptr inbounds i8, ptr %27, i64 72
  %213 = load i64, ptr %212, align 8
  %214 = call ptr @aligned_alloc(i64 64, i64 %213)
  %215 = icmp eq ptr %214, null
  br i1 %215, label %216, label %224

216:
  call void @free(ptr %122)
  %217 = load ptr, ptr %20, align 8
  %218 = getelementptr inbounds i8, ptr %217, i64 48
  %219 = load ptr, ptr %218, align 8
  store i64 28, ptr %4, align 8
  %220 = getelementptr inbounds i8, ptr %4, i64 8
  store ptr null, ptr %220, align 8
  %221 = getelementptr inbounds i8, ptr %4, i64 16
  store ptr @.str.1, ptr %221, align 8
  %222 = getelementptr inbounds i8, ptr %4, i64 24
  store i32 8, ptr %222, align 8
  %223 = call ptr %219(ptr %4)
  br label %269

224:
  %225 = load i64, ptr %138, align 8
  %226 = icmp sgt i64 %225, 1
  br i1 %226, label %227, label %234

227:
  %228 = getelementptr inbounds i8, ptr %3, i64 8
  %229 = getelementptr inbounds i8, ptr %3, i64 16
  %230 = getelementptr inbounds i8, ptr %3, i64 24
  %231 = getelementptr inbounds i8, ptr %3, i64 32
  %232 = getelementptr inbounds i8, ptr %2, i64 8
  %233 = getelementptr inbounds i8, ptr %2, i64 16
  br label %238

234:
  call fastcc void @work(ptr %122, i64 0, ptr %214)
  %235 = load atomic i64, ptr %132 acquire, align 8
  %236 = load i64, ptr %135, align 8
  %237 = icmp slt i64 %235, %236
  br i1 %237, label %259, label %264

238:
  %239 = phi i64 [ 1, %227 ], [ %256, %255 ]
  %240 = atomicrmw add ptr %133, i64 1 acq_rel, align 8
  %241 = load ptr, ptr %20, align 8
  %242 = getelementptr inbounds i8, ptr %241, i64 136
  %243 = load ptr, ptr %242, align 8
  store i64 40, ptr %3, align 8
  store ptr null, ptr %228, align 8
  %244 = load ptr, ptr %15, align 8
  store ptr %244, ptr %229, align 8
  store ptr @task, ptr %230, align 8
  store ptr %122, ptr %231, align 8
  %245 = call ptr %243(ptr %3)
  %246 = icmp eq ptr %245, null
  br i1 %246, label %247, label %248

247:
  br label %255

248:
  %249 = load ptr, ptr %20, align 8
  %250 = getelementptr inbounds i8, ptr %249, i64 64
  %251 = load ptr, ptr %250, align 8
  store i64 24, ptr %2, align 8
  store ptr null, ptr %232, align 8
  store ptr %245, ptr %233, align 8
  call void %251(ptr %2)
  %252 = atomicrmw add ptr %133, i64 -1 acq_rel, align 8
  %253 = icmp eq i64 %252, 1
  br i1 %253, label %254, label %255

254:
  call void @free(ptr %122)
  br label %255

255:
  %256 = add nuw nsw i64 %239, 1
  %257 = load i64, ptr %138, align 8
  %258 = icmp slt i64 %256, %257
  br i1 %258, label %238, label %234

259:
  %260 = call i32 @sched_yield()
  %261 = load atomic i64, ptr %132 acquire, align 8
  %262 = load i64, ptr %135, align 8
  %263 = icmp slt i64 %261, %262
  br i1 %263, label %259, label %264

264:
  %265 = atomicrmw add ptr %133, i64 -1 acq_rel, align 8
  %266 = icmp eq i64 %265, 1
  br i1 %266, label %267, label %268

267:
  call void @free(ptr %122)
  br label %268

268:
  br label %269

269:
  %270 = phi ptr [ null, %53 ], [ %210, %203 ], [ null, %268 ], [ %223, %216 ]
  br label %271

271:
  %272 = phi ptr [ %270, %269 ], [ %24, %12 ]
  br label %273

273:
  %274 = phi ptr [ %272, %271 ], [ null, %1 ]
  ret ptr %274
}

declare ptr @aligned_alloc(i64, i64)

declare void @free(ptr)

declare i32 @sched_yield()

declare ptr @malloc(i64)

declare i32 @madvise(ptr, i64, i32)

define internal void @task(ptr %0) {
  %2 = load atomic i64, ptr %0 acquire, align 8
  %3 = getelementptr inbounds i8, ptr %0, i64 32
  %4 = load i64, ptr %3, align 8
  %5 = icmp slt i64 %2, %4
  br i1 %5, label %6, label %17

6:
  %7 = getelementptr inbounds i8, ptr %0, i64 64
  %8 = load ptr, ptr %7, align 8
  %9 = getelementptr inbounds i8, ptr %8, i64 72
  %10 = load i64, ptr %9, align 8
  %11 = tail call ptr @aligned_alloc(i64 64, i64 %10)
  %12 = icmp eq ptr %11, null
  br i1 %12, label %17, label %13

13:
  %14 = getelementptr inbounds i8, ptr %0, i64 24
  %15 = atomicrmw add ptr %14, i64 1 acq_rel, align 8
  %16 = add nsw i64 %15, 1
  tail call fastcc void @work(ptr %0, i64 %16, ptr %11)
  br label %17

17:
  %18 = getelementptr inbounds i8, ptr %0, i64 16
  %19 = atomicrmw add ptr %18, i64 -1 acq_rel, align 8
  %20 = icmp eq i64 %19, 1
  br i1 %20, label %21, label %22

21:
  tail call void @free(ptr %0)
  br label %22

22:
  ret void
}

define internal fastcc void @work(ptr %0, i64 %1, ptr %2) unnamed_addr {
  %4 = getelementptr inbounds i8, ptr %0, i64 56
  %5 = load i64, ptr %4, align 8
  %6 = getelementptr inbounds i8, ptr %0, i64 32
  %7 = load i64, ptr %6, align 8
  %8 = add nsw i64 %5, %1
  %9 = icmp sgt i64 %5, 0
  br i1 %9, label %10, label %19

10:
  %11 = getelementptr inbounds i8, ptr %0, i64 96
  %12 = getelementptr inbounds i8, ptr %0, i64 40
  %13 = getelementptr inbounds i8, ptr %0, i64 48
  %14 = getelementptr inbounds i8, ptr %0, i64 64
  %15 = getelementptr inbounds i8, ptr %0, i64 72
  %16 = getelementptr inbounds i8, ptr %0, i64 88
  %17 = getelementptr inbounds i8, ptr %0, i64 80
  %18 = getelementptr inbounds i8, ptr %0, i64 8
  br label %20

19:
  tail call void @free(ptr %2)
  ret void

20:
  %21 = phi i64 [ %1, %10 ], [ %232, %231 ]
  %22 = srem i64 %21, %5
  %23 = mul nsw i64 %22, %7
  %24 = sdiv i64 %23, %5
  %25 = add nsw i64 %22, 1
  %26 = mul nsw i64 %25, %7
  %27 = sdiv i64 %26, %5
  %28 = load ptr, ptr %11, align 8
  %29 = getelementptr inbounds i64, ptr %28, i64 %22
  %30 = atomicrmw add ptr %29, i64 1 acq_rel, align 8
  %31 = add nsw i64 %30, %24
  %32 = icmp slt i64 %31, %27
  br i1 %32, label %33, label %231

33:
  %34 = phi i64 [ %229, %224 ], [ %31, %20 ]
  %35 = load i64, ptr %12, align 8
  %36 = mul nsw i64 %35, %34
  %37 = add nsw i64 %36, %35
  %38 = load i64, ptr %13, align 8
  %39 = tail call i64 @llvm.smin.i64(i64 %37, i64 %38)
  %40 = atomicrmw add ptr %0, i64 1 acq_rel, align 8
  %41 = load ptr, ptr %14, align 8
  %42 = load ptr, ptr %15, align 8
  %43 = load ptr, ptr %16, align 8
  %44 = load ptr, ptr %17, align 8
  %45 = getelementptr inbounds i8, ptr %41, i64 64
  %46 = load i64, ptr %45, align 8
  %47 = getelementptr inbounds i8, ptr %2, i64 %46
  %48 = getelementptr inbounds i8, ptr %41, i64 32
  %49 = load i64, ptr %48, align 8
  %50 = getelementptr inbounds %struct.input, ptr %47, i64 %49
  %51 = sub nsw i64 %39, %36
  %52 = getelementptr inbounds i8, ptr %41, i64 56
  %53 = load i64, ptr %52, align 8
  %54 = sdiv i64 %51, %53
  %55 = mul nsw i64 %54, %53
  %56 = add nsw i64 %55, %36
  %57 = icmp sgt i64 %49, 0
  br i1 %57, label %58, label %90

58:
  %59 = getelementptr inbounds i8, ptr %41, i64 80
  br label %60

60:
  %61 = phi i64 [ 0, %58 ], [ %87, %86 ]
  %62 = load ptr, ptr %59, align 8
  %63 = getelementptr inbounds %struct.leaf, ptr %62, i64 %61
  %64 = getelementptr inbounds i64, ptr %43, i64 %61
  %65 = load i64, ptr %64, align 8
  %66 = icmp eq i64 %65, 0
  %67 = getelementptr inbounds %struct.input, ptr %47, i64 %61
  br i1 %66, label %77, label %68

68:
  %69 = getelementptr inbounds ptr, ptr %42, i64 %61
  %70 = load ptr, ptr %69, align 8
  %71 = load i64, ptr %63, align 8
  %72 = mul nsw i64 %71, %36
  %73 = getelementptr inbounds i8, ptr %70, i64 %72
  %74 = load i64, ptr %52, align 8
  %75 = mul nsw i64 %74, %71
  store ptr %73, ptr %67, align 8
  %76 = getelementptr inbounds i8, ptr %67, i64 8
  store i64 %75, ptr %76, align 8
  br label %86

77:
  %78 = getelementptr inbounds i8, ptr %63, i64 16
  %79 = load i64, ptr %78, align 8
  %80 = getelementptr inbounds i8, ptr %2, i64 %79
  store ptr %80, ptr %67, align 8
  %81 = getelementptr inbounds i8, ptr %67, i64 8
  store i64 0, ptr %81, align 8
  %82 = getelementptr inbounds ptr, ptr %42, i64 %61
  %83 = load ptr, ptr %82, align 8
  %84 = load i64, ptr %63, align 8
  %85 = load i64, ptr %52, align 8
  tail call fastcc void @stage(ptr %80, ptr %83, i64 %84, i64 1, i64 %85)
  br label %86

86:
  %87 = add nuw nsw i64 %61, 1
  %88 = load i64, ptr %48, align 8
  %89 = icmp slt i64 %87, %88
  br i1 %89, label %60, label %90

90:
  %91 = phi i64 [ %49, %33 ], [ %88, %86 ]
  %92 = icmp sgt i64 %54, 0
  br i1 %92, label %93, label %167

93:
  %94 = getelementptr inbounds i8, ptr %41, i64 48
  %95 = getelementptr inbounds i8, ptr %41, i64 40
  %96 = getelementptr inbounds i8, ptr %41, i64 88
  %97 = getelementptr inbounds i8, ptr %41, i64 104
  %98 = getelementptr inbounds i8, ptr %41, i64 72
  %99 = getelementptr inbounds i8, ptr %41, i64 24
  %100 = load i64, ptr %94, align 8
  br label %101

101:
  %102 = phi i64 [ %100, %93 ], [ %153, %151 ]
  %103 = phi i64 [ 0, %93 ], [ %154, %151 ]
  %104 = sub nsw i64 %54, %103
  %105 = tail call i64 @llvm.smin.i64(i64 %102, i64 %104)
  %106 = load i64, ptr %52, align 8
  %107 = mul nsw i64 %106, %103
  %108 = add nsw i64 %107, %36
  %109 = load i64, ptr %95, align 8
  %110 = icmp sgt i64 %109, 0
  br i1 %110, label %128, label %113

111:
  %112 = load i64, ptr %52, align 8
  br label %113

113:
  %114 = phi i64 [ %112, %111 ], [ %106, %101 ]
  %115 = mul nsw i64 %114, %105
  %116 = load i64, ptr %97, align 8
  %117 = icmp eq i64 %116, 0
  br i1 %117, label %121, label %118

118:
  %119 = load i64, ptr %98, align 8
  %120 = getelementptr inbounds i8, ptr %2, i64 %119
  tail call fastcc void @on_stack(ptr %120, ptr %41, ptr %47, ptr %50, i64 %115)
  br label %123

121:
  %122 = load ptr, ptr %99, align 8
  tail call void %122(ptr %47, ptr %50, i64 %115)
  br label %123

123:
  %124 = load i64, ptr %52, align 8
  %125 = mul nsw i64 %124, %105
  tail call fastcc void @copy_out(ptr %41, ptr %44, ptr %2, i64 %108, i64 %125, i32 0)
  %126 = load i64, ptr %48, align 8
  %127 = icmp sgt i64 %126, 0
  br i1 %127, label %156, label %151

128:
  %129 = phi i64 [ %148, %145 ], [ 0, %101 ]
  %130 = load ptr, ptr %96, align 8
  %131 = getelementptr inbounds %struct.leaf, ptr %130, i64 %129
  %132 = getelementptr inbounds i8, ptr %131, i64 24
  %133 = load i64, ptr %132, align 8
  %134 = icmp eq i64 %133, 0
  br i1 %134, label %141, label %135

135:
  %136 = getelementptr inbounds ptr, ptr %44, i64 %129
  %137 = load ptr, ptr %136, align 8
  %138 = load i64, ptr %131, align 8
  %139 = mul nsw i64 %138, %108
  %140 = getelementptr inbounds i8, ptr %137, i64 %139
  br label %145

141:
  %142 = getelementptr inbounds i8, ptr %131, i64 16
  %143 = load i64, ptr %142, align 8
  %144 = getelementptr inbounds i8, ptr %2, i64 %143
  br label %145

145:
  %146 = phi ptr [ %140, %135 ], [ %144, %141 ]
  %147 = getelementptr inbounds ptr, ptr %50, i64 %129
  store ptr %146, ptr %147, align 8
  %148 = add nuw nsw i64 %129, 1
  %149 = load i64, ptr %95, align 8
  %150 = icmp slt i64 %148, %149
  br i1 %150, label %128, label %111

151:
  %152 = phi i64 [ %126, %123 ], [ %165, %156 ]
  %153 = load i64, ptr %94, align 8
  %154 = add nsw i64 %153, %103
  %155 = icmp slt i64 %154, %54
  br i1 %155, label %101, label %167

156:
  %157 = phi i64 [ %164, %156 ], [ 0, %123 ]
  %158 = getelementptr inbounds %struct.input, ptr %47, i64 %157
  %159 = getelementptr inbounds i8, ptr %158, i64 8
  %160 = load i64, ptr %159, align 8
  %161 = mul nsw i64 %160, %105
  %162 = load ptr, ptr %158, align 8
  %163 = getelementptr inbounds i8, ptr %162, i64 %161
  store ptr %163, ptr %158, align 8
  %164 = add nuw nsw i64 %157, 1
  %165 = load i64, ptr %48, align 8
  %166 = icmp slt i64 %164, %165
  br i1 %166, label %156, label %151

167:
  %168 = phi i64 [ %91, %90 ], [ %152, %151 ]
  %169 = icmp slt i64 %56, %39
  br i1 %169, label %170, label %224

170:
  %171 = sub nsw i64 %39, %56
  %172 = icmp sgt i64 %168, 0
  br i1 %172, label %173, label %175

173:
  %174 = getelementptr inbounds i8, ptr %41, i64 80
  br label %181

175:
  %176 = getelementptr inbounds i8, ptr %41, i64 40
  %177 = load i64, ptr %176, align 8
  %178 = icmp sgt i64 %177, 0
  br i1 %178, label %179, label %202

179:
  %180 = getelementptr inbounds i8, ptr %41, i64 88
  br label %213

181:
  %182 = phi i64 [ %168, %173 ], [ %199, %198 ]
  %183 = phi i64 [ 0, %173 ], [ %200, %198 ]
  %184 = getelementptr inbounds %struct.input, ptr %47, i64 %183
  %185 = getelementptr inbounds i8, ptr %184, i64 8
  %186 = load i64, ptr %185, align 8
  %187 = icmp eq i64 %186, 0
  br i1 %187, label %198, label %188

188:
  %189 = load ptr, ptr %174, align 8
  %190 = getelementptr inbounds %struct.leaf, ptr %189, i64 %183
  %191 = getelementptr inbounds i8, ptr %190, i64 16
  %192 = load i64, ptr %191, align 8
  %193 = getelementptr inbounds i8, ptr %2, i64 %192
  %194 = load ptr, ptr %184, align 8
  %195 = load i64, ptr %190, align 8
  %196 = load i64, ptr %52, align 8
  tail call fastcc void @stage(ptr %193, ptr %194, i64 %195, i64 %171, i64 %196)
  store ptr %193, ptr %184, align 8
  %197 = load i64, ptr %48, align 8
  br label %198

198:
  %199 = phi i64 [ %182, %181 ], [ %197, %188 ]
  %200 = add nuw nsw i64 %183, 1
  %201 = icmp slt i64 %200, %199
  br i1 %201, label %181, label %175

202:
  %203 = getelementptr inbounds i8, ptr %41, i64 104
  %204 = load i64, ptr %203, align 8
  %205 = icmp eq i64 %204, 0
  br i1 %205, label %210, label %206

206:
  %207 = getelementptr inbounds i8, ptr %41, i64 72
  %208 = load i64, ptr %207, align 8
  %209 = getelementptr inbounds i8, ptr %2, i64 %208
  tail call fastcc void @on_stack(ptr %209, ptr %41, ptr %47, ptr %50, i64 %171)
  br label %223

210:
  %211 = getelementptr inbounds i8, ptr %41, i64 24
  %212 = load ptr, ptr %211, align 8
  tail call void %212(ptr %47, ptr %50, i64 %171)
  br label %223

213:
  %214 = phi i64 [ 0, %179 ], [ %220, %213 ]
  %215 = load ptr, ptr %180, align 8
  %216 = getelementptr inbounds %struct.leaf, ptr %215, i64 %214, i32 2
  %217 = load i64, ptr %216, align 8
  %218 = getelementptr inbounds i8, ptr %2, i64 %217
  %219 = getelementptr inbounds ptr, ptr %50, i64 %214
  store ptr %218, ptr %219, align 8
  %220 = add nuw nsw i64 %214, 1
  %221 = load i64, ptr %176, align 8
  %222 = icmp slt i64 %220, %221
  br i1 %222, label %213, label %202

223:
  tail call fastcc void @copy_out(ptr %41, ptr %44, ptr %2, i64 %56, i64 %171, i32 1)
  br label %224

224:
  %225 = atomicrmw add ptr %18, i64 1 acq_rel, align 8
  %226 = load ptr, ptr %11, align 8
  %227 = getelementptr inbounds i64, ptr %226, i64 %22
  %228 = atomicrmw add ptr %227, i64 1 acq_rel, align 8
  %229 = add nsw i64 %228, %24
  %230 = icmp slt i64 %229, %27
  br i1 %230, label %33, label %231

231:
  %232 = add nsw i64 %21, 1
  %233 = icmp slt i64 %232, %8
  br i1 %233, label %20, label %19
}

define internal fastcc void @stage(ptr %0, ptr %1, i64 %2, i64 %3, i64 %4) unnamed_addr {
  %6 = mul nsw i64 %3, %2
  %7 = tail call ptr @memcpy(ptr %0, ptr %1, i64 %6)
  %8 = icmp slt i64 %3, %4
  br i1 %8, label %9, label %13

9:
  %10 = add nsw i64 %3, -1
  %11 = mul nsw i64 %10, %2
  %12 = getelementptr inbounds i8, ptr %1, i64 %11
  br label %14

13:
  ret void

14:
  %15 = phi i64 [ %3, %9 ], [ %19, %14 ]
  %16 = mul nsw i64 %15, %2
  %17 = getelementptr inbounds i8, ptr %0, i64 %16
  %18 = tail call ptr @memcpy(ptr %17, ptr %12, i64 %2)
  %19 = add i64 %15, 1
  %20 = icmp eq i64 %19, %4
  br i1 %20, label %13, label %14
}

declare ptr @memcpy(ptr, ptr, i64)

define internal fastcc void @copy_out(ptr %0, ptr %1, ptr %2, i64 %3, i64 %4, i32 %5) unnamed_addr {
  %7 = getelementptr inbounds i8, ptr %0, i64 40
  %8 = load i64, ptr %7, align 8
  %9 = icmp sgt i64 %8, 0
  br i1 %9, label %10, label %15

10:
  %11 = getelementptr inbounds i8, ptr %0, i64 88
  %12 = icmp ne i32 %5, 0
  %13 = getelementptr inbounds i8, ptr %0, i64 56
  %14 = icmp sgt i64 %4, 0
  br label %16

15:
  ret void

16:
  %17 = phi i64 [ 0, %10 ], [ %168, %167 ]
  %18 = load ptr, ptr %11, align 8
  %19 = getelementptr inbounds %struct.leaf, ptr %18, i64 %17
  %20 = getelementptr inbounds ptr, ptr %1, i64 %17
  %21 = load ptr, ptr %20, align 8
  %22 = load i64, ptr %19, align 8
  %23 = mul nsw i64 %22, %3
  %24 = getelementptr inbounds i8, ptr %21, i64 %23
  %25 = getelementptr inbounds i8, ptr %19, i64 16
  %26 = load i64, ptr %25, align 8
  %27 = getelementptr inbounds i8, ptr %2, i64 %26
  %28 = getelementptr inbounds i8, ptr %19, i64 24
  %29 = load i64, ptr %28, align 8
  %30 = icmp eq i64 %29, 0
  %31 = or i1 %12, %30
  br i1 %31, label %32, label %167

32:
  %33 = getelementptr inbounds i8, ptr %19, i64 40
  %34 = load i64, ptr %33, align 8
  %35 = icmp eq i64 %34, 0
  br i1 %35, label %164, label %36

36:
  %37 = load i64, ptr %13, align 8
  br i1 %14, label %38, label %167

38:
  %39 = getelementptr inbounds i8, ptr %19, i64 32
  %40 = getelementptr inbounds i8, ptr %19, i64 64
  %41 = getelementptr inbounds i8, ptr %19, i64 56
  %42 = getelementptr inbounds i8, ptr %19, i64 48
  %43 = getelementptr inbounds i8, ptr %19, i64 72
  %44 = getelementptr inbounds i8, ptr %19, i64 80
  br label %45

45:
  %46 = phi i64 [ 0, %38 ], [ %162, %161 ]
  %47 = load i64, ptr %19, align 8
  %48 = mul nsw i64 %47, %46
  %49 = getelementptr inbounds i8, ptr %24, i64 %48
  %50 = load i64, ptr %39, align 8
  %51 = mul nsw i64 %50, %46
  %52 = getelementptr inbounds i8, ptr %27, i64 %51
  %53 = sub nsw i64 %4, %46
  %54 = tail call i64 @llvm.smin.i64(i64 %37, i64 %53)
  %55 = load ptr, ptr %40, align 8
  %56 = icmp eq ptr %55, null
  br i1 %56, label %60, label %57

57:
  %58 = load ptr, ptr %42, align 8
  %59 = load i64, ptr %33, align 8
  br label %68

60:
  %61 = load i64, ptr %33, align 8
  %62 = icmp sge i64 %61, %37
  %63 = icmp sge i64 %53, %37
  %64 = select i1 %62, i1 %63, i1 false
  %65 = load ptr, ptr %42, align 8
  br i1 %64, label %66, label %68

66:
  %67 = load ptr, ptr %44, align 8
  tail call void %67(ptr %52, ptr %49, i64 %61, i64 %47, ptr %65)
  br label %161

68:
  %69 = phi i64 [ %59, %57 ], [ %61, %60 ]
  %70 = phi ptr [ %58, %57 ], [ %65, %60 ]
  %71 = load ptr, ptr %41, align 8
  %72 = icmp sgt i64 %54, 0
  br i1 %72, label %73, label %161

73:
  %74 = icmp sgt i64 %69, 0
  br label %75

75:
  %76 = phi i64 [ 0, %73 ], [ %159, %158 ]
  %77 = load i64, ptr %19, align 8
  %78 = mul nsw i64 %77, %76
  %79 = getelementptr inbounds i8, ptr %49, i64 %78
  %80 = load ptr, ptr %40, align 8
  %81 = icmp eq ptr %80, null
  br i1 %81, label %84, label %82

82:
  %83 = tail call ptr @memcpy(ptr %79, ptr %80, i64 %77)
  br label %84

84:
  %85 = load i64, ptr %43, align 8
  %86 = icmp eq i64 %85, 1
  br i1 %86, label %87, label %103

87:
  %88 = getelementptr i8, ptr %52, i64 %76
  br i1 %74, label %89, label %158

89:
  %90 = phi i64 [ %99, %89 ], [ 0, %87 ]
  %91 = getelementptr inbounds i64, ptr %70, i64 %90
  %92 = load i64, ptr %91, align 8
  %93 = mul nsw i64 %92, %37
  %94 = getelementptr i8, ptr %88, i64 %93
  %95 = load i8, ptr %94, align 1
  %96 = getelementptr inbounds i64, ptr %71, i64 %90
  %97 = load i64, ptr %96, align 8
  %98 = getelementptr inbounds i8, ptr %79, i64 %97
  store i8 %95, ptr %98, align 1
  %99 = add nuw nsw i64 %90, 1
  %100 = icmp eq i64 %99, %69
  br i1 %100, label %101, label %89

101:
  %102 = load i64, ptr %43, align 8
  br label %103

103:
  %104 = phi i64 [ %85, %84 ], [ %102, %101 ]
  %105 = icmp eq i64 %104, 2
  br i1 %105, label %106, label %122

106:
  %107 = getelementptr i16, ptr %52, i64 %76
  br i1 %74, label %108, label %158

108:
  %109 = phi i64 [ %118, %108 ], [ 0, %106 ]
  %110 = getelementptr inbounds i64, ptr %70, i64 %109
  %111 = load i64, ptr %110, align 8
  %112 = mul nsw i64 %111, %37
  %113 = getelementptr i16, ptr %107, i64 %112
  %114 = load i16, ptr %113, align 2
  %115 = getelementptr inbounds i64, ptr %71, i64 %109
  %116 = load i64, ptr %115, align 8
  %117 = getelementptr inbounds i8, ptr %79, i64 %116
  store i16 %114, ptr %117, align 2
  %118 = add nuw nsw i64 %109, 1
  %119 = icmp eq i64 %118, %69
  br i1 %119, label %120, label %108

120:
  %121 = load i64, ptr %43, align 8
  br label %122

122:
  %123 = phi i64 [ %121, %120 ], [ %104, %103 ]
  %124 = icmp eq i64 %123, 4
  br i1 %124, label %125, label %141

125:
  %126 = getelementptr i32, ptr %52, i64 %76
  br i1 %74, label %127, label %158

127:
  %128 = phi i64 [ %137, %127 ], [ 0, %125 ]
  %129 = getelementptr inbounds i64, ptr %70, i64 %128
  %130 = load i64, ptr %129, align 8
  %131 = mul nsw i64 %130, %37
  %132 = getelementptr i32, ptr %126, i64 %131
  %133 = load i32, ptr %132, align 4
  %134 = getelementptr inbounds i64, ptr %71, i64 %128
  %135 = load i64, ptr %134, align 8
  %136 = getelementptr inbounds i8, ptr %79, i64 %135
  store i32 %133, ptr %136, align 4
  %137 = add nuw nsw i64 %128, 1
  %138 = icmp eq i64 %137, %69
  br i1 %138, label %139, label %127

139:
  %140 = load i64, ptr %43, align 8
  br label %141

141:
  %142 = phi i64 [ %123, %122 ], [ %140, %139 ]
  %143 = icmp eq i64 %142, 8
  br i1 %143, label %144, label %158

144:
  %145 = getelementptr i64, ptr %52, i64 %76
  br i1 %74, label %146, label %158

146:
  %147 = phi i64 [ %156, %146 ], [ 0, %144 ]
  %148 = getelementptr inbounds i64, ptr %70, i64 %147
  %149 = load i64, ptr %148, align 8
  %150 = mul nsw i64 %149, %37
  %151 = getelementptr i64, ptr %145, i64 %150
  %152 = load i64, ptr %151, align 8
  %153 = getelementptr inbounds i64, ptr %71, i64 %147
  %154 = load i64, ptr %153, align 8
  %155 = getelementptr inbounds i8, ptr %79, i64 %154
  store i64 %152, ptr %155, align 8
  %156 = add nuw nsw i64 %147, 1
  %157 = icmp eq i64 %156, %69
  br i1 %157, label %158, label %146

158:
  %159 = add nuw nsw i64 %76, 1
  %160 = icmp eq i64 %159, %54
  br i1 %160, label %161, label %75

161:
  %162 = add nsw i64 %46, %37
  %163 = icmp slt i64 %162, %4
  br i1 %163, label %45, label %167

164:
  %165 = mul nsw i64 %22, %4
  %166 = tail call ptr @memcpy(ptr %24, ptr %27, i64 %165)
  br label %167

167:
  %168 = add nuw nsw i64 %17, 1
  %169 = load i64, ptr %7, align 8
  %170 = icmp slt i64 %168, %169
  br i1 %170, label %16, label %15
}

define internal fastcc void @on_stack(ptr %0, ptr %1, ptr %2, ptr %3, i64 %4) unnamed_addr {
  %6 = tail call i64 @llvm.smin.i64(i64 %4, i64 1)
  %7 = shl i64 %6, 3
  %8 = alloca i8, i64 %7, align 16
  %9 = tail call ptr @llvm.stacksave.p0()
  store volatile ptr %9, ptr %8, align 16
  tail call void @llvm.stackrestore.p0(ptr %0)
  %10 = getelementptr inbounds i8, ptr %1, i64 24
  %11 = load ptr, ptr %10, align 8
  tail call void %11(ptr %2, ptr %3, i64 %4)
  %12 = load volatile ptr, ptr %8, align 16
  ret void
}

declare ptr @llvm.stacksave.p0()

declare void @llvm.stackrestore.p0(ptr)

declare i64 @llvm.smin.i64(i64, i64)

declare i64 @llvm.smax.i64(i64, i64)
